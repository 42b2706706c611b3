"""What keeps a run from the others: what it is told, and what each of its processes does."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from operator_runner.execution.isolation import capabilities, landlock, mounts


@dataclass(frozen=True, slots=True)
class Isolation:
    """How runs are kept apart on this machine, by this user. See docs/executor.md."""

    mounts: bool = False
    """Other runs' files are hidden: each run has mounts of its own (needs CAP_SYS_ADMIN)."""
    paths: bool = False
    """Other runs' files cannot be read or written, by rules of Landlock for paths."""
    processes: bool = False
    """Other processes' environment and memory cannot be read, by Landlock.

    Without this, the two above would be of no use: /proc leads round them.
    """


@dataclass(frozen=True, slots=True)
class Enclosure:
    """One run's: of the directory `hidden` it finds what is in `shown`, and can read `shared`."""

    isolation: Isolation
    hidden: str
    shown: tuple[str, ...]
    shared: tuple[str, ...] = ()

    @classmethod
    def of(cls, written: dict[str, Any]) -> Self:
        """Return what `as_json` has written."""
        isolation = Isolation(**written["isolation"])
        shown, shared = tuple(written["shown"]), tuple(written["shared"])
        return cls(isolation, written["hidden"], shown, shared)

    def as_json(self) -> dict[str, Any]:
        """Return it as the processes of the run are told of it."""
        return asdict(self)

    def enter(self) -> None:
        """Enclose this process and all that it starts from now on. Raises OSError."""
        if self.isolation.mounts:
            mounts.hide(self.hidden, self.shown, self.shared)
        self._restrict()

    def join(self, process: int) -> None:
        """Enclose this process as another one of the run, which has entered. Raises OSError."""
        if self.isolation.mounts:
            mounts.join(process)
        self._restrict()

    def _restrict(self) -> None:
        if self.isolation.paths:
            landlock.restrict([*beside(Path(self.hidden)), *self.shown], self.shared)
        elif self.isolation.processes:
            landlock.restrict(["/"])
        if self.isolation.processes:
            capabilities.drop()


def beside(folder: Path) -> list[str]:
    """Return all that there is, but the folder and the directories above it. Raises OSError.

    Landlock knows no exception from what it allows, so all else has to be allowed by name.
    """
    folder = folder.resolve()
    way = {str(path) for path in (folder, *folder.parents)}
    found: list[str] = []
    for parent in folder.parents:
        with os.scandir(parent) as entries:
            found += (
                entry.path for entry in entries if not entry.is_symlink() and entry.path not in way
            )
    return found


def unsettled(folder: Path) -> Path | None:
    """Return a directory above `folder` in which a run could make something; None if none is.

    It could not read there what it has made itself.
    """
    above = folder.resolve().parents
    return next((parent for parent in above if os.access(parent, os.W_OK)), None)
