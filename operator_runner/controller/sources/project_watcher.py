"""Notice edits of the watches file, of roles and of playbooks, and reconcile (--reload)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import structlog

from operator_runner.controller.predicates.primary_events import SeenResources
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Cause, ObjectRef, RunContent, Trigger, Watch
from operator_runner.core.resource_states import ResourceStates

_log = structlog.get_logger(__name__)
_FILE_POLL_SECONDS = 0.5


class WatchesFile:
    """Polls the watches file until it describes other watches."""

    def __init__(
        self, path: Path, watches: Sequence[Watch], load: Callable[[], Sequence[Watch]]
    ) -> None:
        """Take the file, its watches that are in force, and a function that loads it again.

        `load` raises ConfigError for a file that the operator could not start with.
        """
        self._path = path
        self._watches = tuple(watches)
        self._load = load
        self._problems = Deduplicator()

    async def wait_edited(self) -> None:
        """Return when the file was edited, is valid and describes other watches.

        An invalid file is reported and loaded again until it is valid: what it refers to, such as
        a role, may be created after it.
        """
        # Nothing is loaded yet: the file may have been edited since the operator read it.
        loaded: bytes | None = None
        before: bytes | None = None
        while True:
            content = await asyncio.to_thread(_read, self._path)
            # An editor may be writing the file: wait until two reads are equal.
            if content == before and content != loaded:
                watches = await asyncio.to_thread(self._load_valid)
                if watches is not None:
                    loaded = content
                    if tuple(watches) != self._watches:
                        _log.info("Watches file was edited: restarting", path=str(self._path))
                        return
            before = content
            await asyncio.sleep(_FILE_POLL_SECONDS)

    def _load_valid(self) -> Sequence[Watch] | None:
        """Return the watches of the file; None, with its problems in the log, if it is invalid."""
        try:
            watches = self._load()
        except ConfigError as error:
            if self._problems.is_new(error.problems):
                for problem in error.problems:
                    _log.error("Watches file is invalid: keeping the old one", error=problem)
            return None
        self._problems.reset()
        return watches


def _read(path: Path) -> bytes:
    """Return the content; empty if it cannot be read, which `load` reports."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


_POLL_SECONDS = 0.5
"""A role has a handful of files, so that a scan costs microseconds."""
_NEIGHBOURS = (
    "roles",
    "tasks",
    "handlers",
    "vars",
    "templates",
    "files",
    "group_vars",
    "host_vars",
    "library",
)
"""Directories beside a playbook from which Ansible loads files."""

_Times: TypeAlias = Mapping[Path, int]


class ProjectWatcher:
    """Polls the files of each watch's role or playbook."""

    def __init__(
        self,
        watches: Iterable[Watch],
        seen: SeenResources,
        states: ResourceStates,
        enqueue: Callable[[ObjectRef, Cause], None],
    ) -> None:
        """Reconcile the resources of a kind that were seen when its files change.

        Those that `states` show to await an edit, because their play could not be loaded, are also
        reconciled when another file changes that the error may be in: one of a clean-up, or of an
        included role.
        """
        self._watches = tuple(watches)
        self._seen = seen
        self._states = states
        self._enqueue = enqueue

    async def run(self) -> None:
        """Poll until cancelled."""
        before = await asyncio.to_thread(self._scan)
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            after = await asyncio.to_thread(self._scan)
            for watch in self._watches:
                gvk = watch.gvk
                (own, related), (own_before, related_before) = after[gvk], before[gvk]
                if path := changed_file(own_before, own):
                    self._enqueue_all(path, gvk, self._seen.of_kind(gvk))
                elif (waiting := self._waiting(gvk)) and (
                    path := changed_file(related_before, related)
                ):
                    self._enqueue_all(path, gvk, waiting)
            before = after

    def _waiting(self, gvk: GVK) -> list[ObjectRef]:
        return [state.ref for state in self._states if state.awaits_edit and state.ref.gvk == gvk]

    def _enqueue_all(self, path: Path, gvk: GVK, refs: Iterable[ObjectRef]) -> None:
        resources = list(refs)
        _log.info("Project file changed", path=str(path), kind=gvk.kind, resources=len(resources))
        for ref in resources:
            self._enqueue(ref, Cause(Trigger.PROJECT, f"{path.name} edited"))

    def _scan(self) -> dict[GVK, tuple[_Times, _Times]]:
        """Return the files of each kind, and the related ones."""
        return {
            watch.gvk: (_times(own_paths(watch.content)), _times(related_paths(watch)))
            for watch in self._watches
        }


def changed_file(before: _Times, after: _Times) -> Path | None:
    """Return a file that was added, removed or modified, or None."""
    return min((path for path, _ in before.items() ^ after.items()), default=None)


def own_paths(content: RunContent) -> Iterator[Path]:
    """Yield the role, or the playbook and the roles of its project."""
    yield content.path
    if content.role is None:
        folder = content.path.parent
        yield folder / "roles"
        if folder.name == "playbooks":
            yield folder.parent / "roles"


def related_paths(watch: Watch) -> Iterator[Path]:
    """Yield the files and directories that plays may load besides the content of the watch."""
    yield from _neighbours(watch.content)
    for content in watch.contents[1:]:
        yield content.path
        yield from _neighbours(content)


def _neighbours(content: RunContent) -> Iterator[Path]:
    if content.role is None:
        yield from (content.path.parent / name for name in _NEIGHBOURS)
    elif content.role.parent.name == "roles":
        # Other directories that contain a role may contain anything else.
        yield content.role.parent


def _times(paths: Iterable[Path]) -> _Times:
    times: dict[Path, int] = {}
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else (path,):
            try:
                if not file.is_dir():
                    times[file] = file.stat().st_mtime_ns
            except FileNotFoundError:
                # Editors write a new file and rename it: the next scan finds it.
                continue
    return times
