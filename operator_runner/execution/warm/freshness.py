"""Whether what was preloaded still is what stands on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class Freshness:
    """The state of files and directories when they were read."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Take note of the paths as they are now; one that is missing may come."""
        self._seen = {str(path): _state(str(path)) for path in paths}

    def changed(self) -> str | None:
        """Return a path that is not as it was, or None."""
        for path, state in self._seen.items():
            if _state(path) != state:
                return path
        return None


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (a few thousand of these for each run)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
