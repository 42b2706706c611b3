"""Reconcile the resources of a role or playbook when its files change (--reload)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger, Watch

_log = structlog.get_logger(__name__)
_POLL_SECONDS = 0.5
"""A role has a handful of files, so that a scan costs microseconds."""


class ProjectWatcher:
    """Polls the files of each watch's role or playbook."""

    def __init__(
        self,
        watches: Iterable[Watch],
        known: Callable[[GVK], Iterable[ObjectRef]],
        enqueue: Callable[[ObjectRef, Cause], None],
    ) -> None:
        """`known` returns the resources of a kind, which are reconciled when its files change."""
        self._watches = tuple(watches)
        self._known = known
        self._enqueue = enqueue

    async def run(self) -> None:
        """Poll until cancelled."""
        before = await asyncio.to_thread(self._scan)
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            after = await asyncio.to_thread(self._scan)
            for watch in self._watches:
                changed = sorted(set(after[watch.gvk].items()) ^ set(before[watch.gvk].items()))
                if changed:
                    self._enqueue_all(watch, changed[0][0])
            before = after

    def _enqueue_all(self, watch: Watch, path: Path) -> None:
        _log.info("Project file changed", path=str(path), kind=watch.gvk.kind)
        for ref in self._known(watch.gvk):
            self._enqueue(ref, Cause(Trigger.PROJECT, f"{path.name} edited"))

    def _scan(self) -> dict[GVK, dict[Path, int]]:
        return {watch.gvk: _times(watch.content.path) for watch in self._watches}


def _times(path: Path) -> dict[Path, int]:
    files = path.rglob("*") if path.is_dir() else (path,)
    times: dict[Path, int] = {}
    for file in files:
        try:
            times[file] = file.stat().st_mtime_ns
        except FileNotFoundError:
            # Editors write a new file and rename it: the next scan finds it.
            continue
    return times
