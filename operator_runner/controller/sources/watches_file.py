"""Notice edits of the watches file (--reload)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Watch

_log = structlog.get_logger(__name__)
_POLL_SECONDS = 0.5


class WatchesFile:
    """Polls the watches file until it describes other watches."""

    def __init__(
        self, path: Path, watches: Sequence[Watch], load: Callable[[], Sequence[Watch]]
    ) -> None:
        """Take the file, its watches that are in force, and a function that loads it again.

        `load` raises ConfigError for a file that the operator could not start with.
        """
        self._path = path
        self._watches = tuple(watches)
        self._load = load
        self._problems = Deduplicator()

    async def wait_edited(self) -> None:
        """Return when the file was edited, is valid and describes other watches.

        An invalid file is reported and loaded again until it is valid: what it refers to, such as
        a role, may be created after it.
        """
        # Nothing is loaded yet: the file may have been edited since the operator read it.
        loaded: bytes | None = None
        before: bytes | None = None
        while True:
            content = await asyncio.to_thread(_read, self._path)
            # An editor may be writing the file: wait until two reads are equal.
            if content == before and content != loaded:
                watches = await asyncio.to_thread(self._load_valid)
                if watches is not None:
                    loaded = content
                    if tuple(watches) != self._watches:
                        _log.info("Watches file was edited: restarting", path=str(self._path))
                        return
            before = content
            await asyncio.sleep(_POLL_SECONDS)

    def _load_valid(self) -> Sequence[Watch] | None:
        """Return the watches of the file; None, with its problems in the log, if it is invalid."""
        try:
            watches = self._load()
        except ConfigError as error:
            if self._problems.is_new(error.problems):
                for problem in error.problems:
                    _log.error("Watches file is invalid: keeping the old one", error=problem)
            return None
        self._problems.reset()
        return watches


def _read(path: Path) -> bytes:
    """Return the content; empty if it cannot be read, which `load` reports."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
