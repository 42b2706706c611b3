"""Edits of roles and playbooks wake the resources that they belong to (--reload)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger, Watch

_log = structlog.get_logger(__name__)
_POLL = 0.5
"""Seconds between two looks: a role has a handful of files, so a look costs microseconds."""


class ProjectWatcher:
    """Looks at the files of each watch's role or playbook."""

    def __init__(
        self,
        watches: Iterable[Watch],
        known: Callable[[GVK], Iterable[ObjectRef]],
        enqueue: Callable[[ObjectRef, Cause], None],
    ) -> None:
        """`known` gives the resources of a kind, which are reconciled when its files change."""
        self._watches = tuple(watches)
        self._known = known
        self._enqueue = enqueue

    async def run(self) -> None:
        """Look until cancelled."""
        before = await asyncio.to_thread(self._look)
        while True:
            await asyncio.sleep(_POLL)
            after = await asyncio.to_thread(self._look)
            for watch in self._watches:
                changed = sorted(set(after[watch.gvk].items()) ^ set(before[watch.gvk].items()))
                if changed:
                    self._wake(watch, changed[0][0])
            before = after

    def _wake(self, watch: Watch, path: Path) -> None:
        _log.info("The project was edited", path=str(path), kind=watch.gvk.kind)
        for ref in self._known(watch.gvk):
            self._enqueue(ref, Cause(Trigger.PROJECT, f"{path.name} edited"))

    def _look(self) -> dict[GVK, dict[Path, int]]:
        return {watch.gvk: _times(watch.content.path) for watch in self._watches}


def _times(path: Path) -> dict[Path, int]:
    files = path.rglob("*") if path.is_dir() else (path,)
    times: dict[Path, int] = {}
    for file in files:
        try:
            times[file] = file.stat().st_mtime_ns
        except FileNotFoundError:
            # Editors write a new file and rename it: the next look sees it.
            continue
    return times
