"""Measure memory, files and descriptors of an idle operator."""

from __future__ import annotations

from dataclasses import dataclass

from bench import accounting
from bench.environment import Site
from bench.errors import BenchError
from bench.figures import mebibytes

NOISE = 0.05
"""Accepted relative difference of memory between two measurements."""
ALWAYS_LOADED = ("--fork-server-idle-timeout=0s",)
"""Flags of an operator whose memory is the same after each pause, however long."""
_MAX_NAMES = 10
_QUIET_SECONDS = 3.0
"""On a busy machine the fork server prepares the next run late; that process has memory too."""
_CONNECTIONS = 4
"""Descriptors that vary: keep-alive connections to the API server."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Footprint of operator and fork server, with the files of existing resources."""

    memory: int
    """Sum of the proportional set sizes in bytes, without pages of files."""
    files: int
    """Files and folders."""
    descriptors: int
    temporary: frozenset[str]
    """Paths outside the work dir: in the temporary folder and in the home."""

    @classmethod
    def measure(cls, site: Site) -> Footprint:
        """Measure a site when it has no runs."""
        site.wait_for_quiet(_QUIET_SECONDS)
        family = site.family()
        return cls(
            accounting.memory(family, of_files=False),
            accounting.files_and_folders(site.folders),
            accounting.descriptors(family),
            frozenset(str(path) for folder in site.folders[1:] for path in folder.rglob("*")),
        )

    def __str__(self) -> str:
        files = f"{self.files} files and folders"
        return f"{mebibytes(self.memory)}, {files}, {self.descriptors} descriptors"

    def require_flat(self, before: Footprint) -> None:
        """Raise BenchError if this footprint is larger than `before`."""
        grown = [
            name
            for name, limit in (
                ("memory", before.memory * (1 + NOISE)),
                ("files", before.files),
                ("descriptors", before.descriptors + _CONNECTIONS),
            )
            if getattr(self, name) > limit
        ]
        if grown:
            new = sorted(self.temporary - before.temporary)[:_MAX_NAMES]
            raise BenchError(
                f"grown: {', '.join(grown)}; {before} became {self}; new outside the work dir: "
                + (", ".join(new) or "nothing")
            )
