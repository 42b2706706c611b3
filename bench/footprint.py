"""What an operator without runs has taken: memory, files and descriptors."""

from __future__ import annotations

from dataclasses import dataclass

from bench import accounting
from bench.environment import Site
from bench.errors import BenchError
from bench.figures import mebibytes

NOISE = 0.05
"""By so much memory may differ between two moments of the same kind."""
_NAMED = 10
_CONNECTIONS = 4
"""Descriptors that come and go: kept-alive connections to the API server."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A look at operator and fork server, and the files of the resources that are there."""

    memory: int
    """Sum of the proportional set sizes in bytes."""
    files: int
    """Files and folders."""
    descriptors: int
    temporary: frozenset[str]
    """Names of what is outside the work dir: in the temporary folder and in the home."""

    @classmethod
    def by(cls, site: Site) -> Taken:
        """Look at a site as soon as it has no runs."""
        site.wait_for_quiet()
        family = site.family()
        return cls(
            accounting.memory(family),
            accounting.files_and_folders(site.folders),
            accounting.descriptors(family),
            frozenset(str(path) for folder in site.folders[1:] for path in folder.rglob("*")),
        )

    def __str__(self) -> str:
        files = f"{self.files} files and folders"
        return f"{mebibytes(self.memory)}, {files}, {self.descriptors} descriptors"

    def require_flat(self, before: Taken) -> None:
        """Raise BenchError if this is more than `before`."""
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
            new = sorted(self.temporary - before.temporary)[:_NAMED]
            raise BenchError(
                f"grown: {', '.join(grown)}; {before} became {self}; new outside the work dir: "
                + (", ".join(new) or "nothing")
            )
