"""The files that this process was loaded from: their commit, and whether they were replaced.

Standard library only: the build of the wheel (hatch_build.py) uses it, too.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "OPERATOR_RUNNER_COMMIT"
"""Names the commit where sources come without their history, as in an image's build."""
FILE = "_commit"
"""In an installed package; written when its wheel is built."""
UNKNOWN = "unknown"

_PACKAGE = Path(__file__).parents[1]
_MARK = _PACKAGE / "__init__.py"
"""A file that each installation writes."""
_POLL_SECONDS = 2.0


def commit(environ: Mapping[str, str] = os.environ, package: Path = _PACKAGE) -> str:
    """Return the commit's id: of the variable, the wheel, or the checkout; else `unknown`."""
    if given := environ.get(VARIABLE, "").strip():
        return given
    built = package / FILE
    if built.exists():
        return built.read_text().strip()
    return _checked_out(package.parent) or UNKNOWN


def _checked_out(root: Path) -> str:
    # Elsewhere git would look in the folders above, which are another project's.
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""  # git is not installed
    return completed.stdout.strip() if completed.returncode == 0 else ""


async def wait_replaced() -> None:
    """Return when an upgrade in place, such as by pip in a running Pod, has written other files.

    Processes that start later load these, whose messages may differ from those of this process.
    """
    while _state(_MARK) == _LOADED:  # noqa: ASYNC110 (files have no events)
        await asyncio.sleep(_POLL_SECONDS)


def wait_complete() -> None:
    """Return when the files exist, and nothing has written them for two seconds."""
    before, now = None, [_state(_MARK)]
    while now != before or now[0] is None:
        time.sleep(_POLL_SECONDS)
        before, now = now, [_state(file) for file in (_MARK, *sorted(_PACKAGE.rglob("*.py")))]


def _state(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        return (found := file.stat()).st_ino, found.st_mtime_ns
    return None


_LOADED = _state(_MARK)
