"""Isolate a run from the operator, its credentials (`kube/credential_files.py`) and other runs."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from operator_runner.ansible.sandbox import capabilities, landlock, limits, mounts


@dataclass(frozen=True, slots=True)
class Isolation:
    """The kinds of isolation that this host supports for this user. See docs/executor.md."""

    mounts: bool = False
    """Other runs' files are hidden by a mount namespace per run (needs CAP_SYS_ADMIN)."""
    paths: bool = False
    """Other runs' files cannot be read or written, by Landlock path rules."""
    processes: bool = False
    """Other processes' environment and memory cannot be read, by Landlock.

    Required for the two above, which /proc would bypass otherwise.
    """
    signals: bool = False
    """The operator and other runs cannot be sent signals, by Landlock."""
    limits: bool = False
    """Resource limits of the operator and of other runs cannot be changed, their files neither
    watched nor leased, nor given an ACL, by seccomp."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one run: all paths are absolute.

    Below the directory `hidden` it can access only the directories in `visible`, and read those
    in `readable`. It cannot read `secrets`, files and directories with the operator's credentials.
    It can read the directories `protected`, as far as they are not `hidden`, but not change them:
    what later runs and the operator load. A process of it opens `descriptors` files at most (0: as
    many as the operator), and one that joins it, which is a play, twice as many. A process can pass
    a socket to another one as long as fewer of them are in transit, of all processes of the user,
    than it may open itself: so modules stop neither plays nor the operator.
    """

    isolation: Isolation
    hidden: str
    visible: tuple[str, ...]
    readable: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    descriptors: int = 0

    @classmethod
    def from_json(cls, encoded: dict[str, Any]) -> Self:
        """Return a sandbox whose fields, as `dataclasses.asdict` gives them, went through JSON."""
        fields: dict[str, Any] = {
            name: tuple(each) if isinstance(each, list) else each for name, each in encoded.items()
        }
        fields["isolation"] = Isolation(**encoded["isolation"])
        return cls(**fields)

    def enter(self, *, scoped: bool = False) -> None:
        """Move this process, and all that it starts from now on, into the sandbox. Raises OSError.

        `scoped` is True if `landlock.scope_signals` was already called: a process of the run that
        is started before that call is outside its signal scope.
        """
        if self.isolation.signals and not scoped:
            landlock.scope_signals(paths_follow=not self.isolation.mounts)
        if self.isolation.mounts:
            mounts.hide(self.hidden, self.visible, self.readable, self.protected)
            mounts.mask(self.secrets)
        self._restrict(self.descriptors)

    def join(self, process: int) -> None:
        """Move this process into the sandbox of a process that has entered it. Raises OSError."""
        if self.isolation.mounts:
            mounts.join(process)
        self._restrict(2 * self.descriptors)

    def _restrict(self, descriptors: int) -> None:
        if not self.isolation.processes:
            return
        if descriptors:
            most = min(descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        if not self.isolation.mounts:
            closed = [Path(self.hidden)] if self.isolation.paths else []
            closed += filter(Path.exists, map(Path, self.secrets))
            protected = [path for path in map(Path, self.protected) if path.exists()]
            writable = [*all_except(*closed, *protected), *self.visible]
            readable = [*self.readable, *_covering(protected, closed)]
            landlock.restrict(writable if closed or protected else ["/"], readable)
        elif not self.isolation.signals:
            landlock.restrict(["/"])  # signal scopes deny access to other processes as well
        if self.isolation.limits:
            limits.restrict_calls()
        capabilities.drop()


def _covering(protected: Iterable[Path], closed: Sequence[Path]) -> Iterator[str]:
    """Yield paths that cover the protected directories except for what is closed in them."""
    for directory in protected:
        inside = [path for path in closed if path.resolve().is_relative_to(directory.resolve())]
        yield from all_except(*inside, below=directory.resolve()) if inside else [str(directory)]


def all_except(*closed: Path, below: Path = Path("/")) -> list[str]:
    """Return paths that cover all files `below` except those below `closed`. Raises OSError.

    Landlock has no exceptions from allowed paths, so all others have to be listed.
    """
    resolved = {path.resolve() for path in closed}
    above = {parent for path in resolved for parent in path.parents}
    above = {path for path in above if path.is_relative_to(below)}
    # Paths below a closed directory are closed with it.
    above -= resolved | {path for path in above if resolved & {*path.parents}}
    excluded = {str(path) for path in (*resolved, *above)}
    found: list[str] = []
    for parent in above:
        with os.scandir(parent) as entries:
            found += (
                entry.path
                for entry in entries
                if not entry.is_symlink() and entry.path not in excluded
            )
    return found


def writable_ancestor(path: Path, protected: Sequence[Path] = ()) -> Path | None:
    """Return a directory above `path` that runs can write to, None if runs cannot write to any.

    They cannot write below `protected`. With path rules a run could not read what it creates in
    such a directory.
    """
    closed = [each.resolve() for each in protected]
    for parent in path.resolve().parents:
        if not any(map(parent.is_relative_to, closed)) and os.access(parent, os.W_OK):
            return parent
    return None
