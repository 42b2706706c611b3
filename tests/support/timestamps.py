"""The times of files, which the kernel counts in ticks of some milliseconds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def wait_for_new_timestamp(folder: Path) -> None:
    """Return when a file that is written now gets a later time than all files before."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        mark = Path(file.name)
        before = mark.stat().st_mtime_ns
        while mark.stat().st_mtime_ns == before:
            os.utime(mark)
