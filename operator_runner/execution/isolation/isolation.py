"""What keeps a run from the others: what it is told, and what each of its processes does."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    """Other runs' files cannot be read, by rules of Landlock for paths."""
    processes: bool = False
    """Other processes' environment and memory cannot be read, by Landlock."""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """One run's: of the directory `hidden` it finds only what is in `shown`."""

    isolation: Isolation
    hidden: str
    shown: tuple[str, ...]

    @classmethod
    def of(cls, written: dict[str, Any]) -> Self:
        """Return what `as_json` has written."""
        isolation = Isolation(**written["isolation"])
        return cls(isolation, written["hidden"], tuple(written["shown"]))

    def as_json(self) -> dict[str, Any]:
        """Return it as the processes of the run are told of it."""
        return asdict(self)

    def enter(self) -> None:
        """Enclose this process and all that it starts from now on. Raises OSError."""
        if self.isolation.mounts:
            mounts.hide(Path(self.hidden), [Path(path) for path in self.shown])
        self._restrict()

    def join(self, process: int) -> None:
        """Enclose this process as another one of the run, which has entered. Raises OSError."""
        if self.isolation.mounts:
            mounts.join(process)
        self._restrict()

    def _restrict(self) -> None:
        if self.isolation.paths:
            landlock.restrict([*beside(Path(self.hidden)), *map(Path, self.shown)])
        elif self.isolation.processes:
            landlock.restrict([Path("/")])
        if self.isolation.processes:
            capabilities.drop()


def beside(folder: Path) -> Iterator[Path]:
    """Yield all that there is, but the folder and the directories above it.

    Landlock knows no exception from what it allows, so all else has to be allowed by name.
    """
    folder = folder.resolve()
    for parent in folder.parents:
        with os.scandir(parent) as entries:
            for entry in entries:
                path = Path(entry.path)
                if not entry.is_symlink() and path != folder and path not in folder.parents:
                    yield path


def unsettled(folder: Path) -> Path | None:
    """Return a directory above `folder` in which a run could make something; None if none is.

    It could not read there what it has made itself.
    """
    above = folder.resolve().parents
    return next((parent for parent in above if os.access(parent, os.W_OK)), None)
