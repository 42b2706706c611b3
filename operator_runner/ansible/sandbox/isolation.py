"""What keeps a run from the others: what it is told, and what each of its processes does."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from operator_runner.ansible.sandbox import capabilities, landlock, mounts


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
    signals: bool = False
    """Processes of the operator and of other runs cannot be sent signals, by Landlock."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One run's: of the directory `hidden` it finds what is in `shown`, and can read `shared`.

    It cannot read `secrets`, files and directories with credentials of the operator.
    """

    isolation: Isolation
    hidden: str
    visible: tuple[str, ...]
    readable: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> Self:
        """Return what `as_json` has written."""
        isolation = Isolation(**written["isolation"])
        parts = (tuple(written[name]) for name in ("visible", "readable", "secrets"))
        return cls(isolation, written["hidden"], *parts)

    def as_json(self) -> dict[str, Any]:
        """Return it as the processes of the run are told of it."""
        return asdict(self)

    def enter(self, *, scoped: bool = False) -> None:
        """Enclose this process and all that it starts from now on. Raises OSError.

        `scoped` is whether `landlock.scope_signals` was called already: it has to be before another
        process of the run is started, which the two could not signal each other otherwise.
        """
        if self.isolation.signals and not scoped:
            landlock.scope_signals(paths_follow=not self.isolation.mounts)
        if self.isolation.mounts:
            mounts.hide(self.hidden, self.visible, self.readable)
            mounts.cover(self.secrets)
        self._restrict()

    def join(self, process: int) -> None:
        """Enclose this process as another one of the run, which has entered. Raises OSError."""
        if self.isolation.mounts:
            mounts.join(process)
        self._restrict()

    def _restrict(self) -> None:
        if not self.isolation.processes:
            return
        if not self.isolation.mounts:
            closed = [self.hidden] if self.isolation.paths else []
            closed += filter(os.path.exists, self.secrets)
            allowed = [*beside(*map(Path, closed)), *self.visible] if closed else ["/"]
            landlock.restrict(allowed, self.readable)
        elif not self.isolation.signals:
            landlock.restrict(["/"])  # scopes keep from other processes as well
        capabilities.drop()


def beside(*closed: Path) -> list[str]:
    """Return all that there is, but these paths and the directories above them. Raises OSError.

    Landlock knows no exception from what it allows, so all else has to be allowed by name.
    """
    resolved = {path.resolve() for path in closed}
    above = {parent for path in resolved for parent in path.parents}
    # What is below a closed directory is closed with it.
    above -= resolved | {path for path in above if resolved & {*path.parents}}
    way = {str(path) for path in (*resolved, *above)}
    found: list[str] = []
    for parent in above:
        with os.scandir(parent) as entries:
            found += (
                entry.path for entry in entries if not entry.is_symlink() and entry.path not in way
            )
    return found


def unsettled(path: Path) -> Path | None:
    """Return a directory above `path` in which a run could make something; None if none is.

    It could not read there what it has made itself.
    """
    above = path.resolve().parents
    return next((parent for parent in above if os.access(parent, os.W_OK)), None)
