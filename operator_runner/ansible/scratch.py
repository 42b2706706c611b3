"""The temporary directory of each run, and the one thing in it that outlives the run.

A run has a TMPDIR of its own: what it leaves there goes with it, however it ended. Clients
written in Python keep what they have discovered of the API there, too, and to discover it
again takes longer than most plays: those files are handed on from run to run.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from operator_runner.ansible.nofollow_io import is_file

OWN_NAMES = ("tmp", "discovery")
"""What of the work dir is taken here; see `rundir`."""
_DISCOVERY = ("k8srcp-*.json", "osrcp-*.json")
"""Names that kubernetes.core and the Kubernetes client give these caches."""
_MAX_CACHES = 8
"""One is for one API server and credentials; more are kept for roles that visit other clusters."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The temporary directories below the work dir `base`."""

    base: Path

    def of(self, run_id: str) -> Path:
        """Return the directory of a run, whether it exists or not.

        Short, for sockets are made in such places, and their paths end at 107 bytes.
        """
        return self.base / OWN_NAMES[0] / run_id

    def clear(self) -> None:
        """Remove what runs before the start of this process left."""
        shutil.rmtree(self.base / OWN_NAMES[0], ignore_errors=True)

    def open(self, run_id: str) -> None:
        """Make the directory of a run. Raises OSError."""
        self.of(run_id).mkdir(mode=0o700, parents=True)
        self._cache.mkdir(mode=0o700, exist_ok=True)
        for cached in self._cache.iterdir():
            # Copies: a client writes into the file that it has read.
            shutil.copy2(cached, self.of(run_id) / cached.name, follow_symlinks=False)

    def close(self, run_id: str) -> None:
        """Remove the directory of a run; what it has discovered is for the next. Raises OSError."""
        folder = self.of(run_id)
        for pattern in _DISCOVERY:
            for found in filter(is_file, folder.glob(pattern)):
                self._keep(found)
        shutil.rmtree(folder, ignore_errors=True)

    def forget(self) -> None:
        """Remove everything: there is no resource left that needs it."""
        for name in OWN_NAMES:
            shutil.rmtree(self.base / name, ignore_errors=True)

    @property
    def _cache(self) -> Path:
        return self.base / OWN_NAMES[1]

    def _keep(self, found: Path) -> None:
        kept = self._cache / found.name
        if kept.exists() and kept.stat().st_mtime_ns == found.stat().st_mtime_ns:
            return
        os.replace(found, kept)  # noqa: PTH105 (in one step, for runs that copy it now)
        caches = sorted(self._cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in caches[:-_MAX_CACHES]:
            old.unlink()
