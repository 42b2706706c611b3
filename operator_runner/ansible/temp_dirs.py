"""Manage the temporary directory of each run and the discovery caches that runs share.

Each run has a TMPDIR of its own, which is removed after the run. Python clients of the API cache
their discovery in TMPDIR, and discovery takes longer than most plays: these files are copied from
run to run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path

DIR_NAMES = ("tmp", "discovery")
"""Directories below the work dir that are used here; see `rundir`."""
_DISCOVERY = ("k8srcp-*.json", "osrcp-*.json")
"""Cache files of kubernetes.core and the Kubernetes client."""
_MAX_CACHES = 8
"""Caches kept, newest first. Each is for one API server and user; roles may use several."""


class TempDirs:
    """The temporary directories of runs, below the work dir `base`."""

    def __init__(self, base: Path) -> None:
        """Touch nothing yet."""
        self.base = base
        self._outdated_ns = 0
        """Caches that were written up to this time are not kept, in ns since the epoch."""

    def path(self, run_id: str) -> Path:
        """Return the directory of a run, which may not exist.

        It is short because paths of Unix sockets are limited to 107 bytes; see `socket_paths`.
        """
        return self.base / DIR_NAMES[0] / run_id

    def clear(self) -> None:
        """Remove the directories of runs of a previous process."""
        shutil.rmtree(self.base / DIR_NAMES[0], ignore_errors=True)

    def create(self, run_id: str) -> None:
        """Create the directory of a run, with the cached discovery. Raises OSError."""
        self.path(run_id).mkdir(mode=0o700, parents=True)
        self._cache.mkdir(mode=0o700, exist_ok=True)
        for cached in self._cache.iterdir():
            # Copies, because clients write to these files.
            with contextlib.suppress(FileNotFoundError):  # forgotten just now
                shutil.copy2(cached, self.path(run_id) / cached.name, follow_symlinks=False)

    def remove(self, run_id: str) -> None:
        """Remove the directory of a run and keep its discovery. Raises OSError."""
        directory = self.path(run_id)
        for pattern in _DISCOVERY:
            for found in directory.glob(pattern):
                if stat.S_ISREG(found.lstat().st_mode):
                    self._keep(found)
        shutil.rmtree(directory, ignore_errors=True)

    def forget_discovery(self) -> None:
        """Make the next runs discover again: the API server has changed what it serves.

        Runs in progress have copies of the caches, which are not kept either.
        """
        self._outdated_ns = time.time_ns()
        with contextlib.suppress(FileNotFoundError):
            for cached in self._cache.iterdir():
                cached.unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove the directories and the caches."""
        for name in DIR_NAMES:
            shutil.rmtree(self.base / name, ignore_errors=True)

    @property
    def _cache(self) -> Path:
        return self.base / DIR_NAMES[1]

    def _keep(self, found: Path) -> None:
        if found.stat().st_mtime_ns <= self._outdated_ns:
            return
        kept = self._cache / found.name
        if kept.exists() and kept.stat().st_mtime_ns == found.stat().st_mtime_ns:
            return
        os.replace(found, kept)  # noqa: PTH105 (atomic, because runs may copy it now)
        caches = sorted(self._cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in caches[:-_MAX_CACHES]:
            old.unlink()
