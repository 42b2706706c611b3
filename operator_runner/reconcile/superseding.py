"""End a run when a user cancels it, or changes or deletes its resource.

Changes and deletions end the runs of watches with `supersede`.

See docs/adr/0009-bounds-and-superseding.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from operator_runner.config.watches.selection import is_selected
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError
from operator_runner.core.model import (
    Cause,
    Json,
    ObjectRef,
    RunOutcome,
    Trigger,
    Watch,
    desired_state,
)
from operator_runner.reconcile.annotations import (
    ANNOTATIONS,
    SUSPENDED,
    Suspension,
    annotations_of,
    suspension,
)
from operator_runner.reconcile.observer import ResourceRun

_log = structlog.get_logger(__name__)

_USER_TRIGGERS = frozenset({Trigger.SPEC, Trigger.ANNOTATION, Trigger.DELETION})
"""Causes after which the resource is read again; other causes end no run."""
_MAX_SUPERSEDED_IN_A_ROW = 5
"""Consecutive runs of a resource that edits may end; the next run is completed."""


def supersede_reason(running: Json, now: Json | None, watch: Watch) -> str:
    """Return why a run of `running` is obsolete, empty if it is not. Pure.

    `now` is the current resource, None if it is deleted. Changes of status, labels and finalizers
    never make a run obsolete.
    """
    if now is None or now["metadata"].get("uid") != running["metadata"].get("uid"):
        return "deleted"
    old, new = running["metadata"], now["metadata"]
    if new.get("deletionTimestamp"):
        return "" if old.get("deletionTimestamp") else "being deleted"
    before, after = old.get("generation") or 0, new.get("generation") or 0
    if before != after:
        return f"generation {before} to {after}"
    if not after and desired_state(running) != desired_state(now):
        # Kinds without generation, such as ConfigMap, are compared by content.
        return f"resourceVersion {old.get('resourceVersion')} to {new.get('resourceVersion')}"
    if watch.watch_annotations_changes and _annotations(old, watch) != _annotations(new, watch):
        return "annotations"
    return ""


def _annotations(metadata: Json, watch: Watch) -> Json:
    """Return the annotations without those of the runner itself."""
    mark = watch.deselection.annotation if watch.deselection is not None else None
    annotations: Json = metadata.get("annotations") or {}
    return {k: v for k, v in annotations.items() if k != mark and k not in ANNOTATIONS}


@dataclass(slots=True)
class SupersedeMonitor:
    """Ends runs of one watch that are superseded, and counts consecutive ones per resource."""

    watch: Watch
    read: Callable[[ObjectRef], Awaitable[Json | None]]
    """Read a resource; None if it is deleted. Raises ApiError."""
    _changed: dict[ObjectRef, asyncio.Event] = field(default_factory=dict)

    @contextmanager
    def watching(self, ref: ObjectRef) -> Iterator[None]:
        """Record events inside the block, which has to begin before the resource is read."""
        self._changed[ref] = asyncio.Event()
        try:
            yield
        finally:
            del self._changed[ref]

    def on_event(self, ref: ObjectRef, cause: Cause) -> None:
        """Record an event that may supersede the current run of the resource."""
        may_end = self.watch.supersede or cause.detail == SUSPENDED
        if may_end and cause.trigger in _USER_TRIGGERS and ref in self._changed:
            self._changed[ref].set()

    async def run(
        self, run: ResourceRun, play: Coroutine[Any, Any, RunOutcome]
    ) -> RunOutcome | None:
        """Run the play to its end; return None if it was cancelled.

        Either a user cancelled it, or its resource is obsolete and `supersede` of the watch permits
        that; never in a clean-up. All processes of a cancelled play are terminated.
        """
        playing = asyncio.create_task(play)
        waiting = asyncio.create_task(self._wait_for_reason(run))
        try:
            await asyncio.wait({playing, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                _log.info("Run superseded", by=waiting.result())
                playing.cancel()
                await asyncio.wait({playing})
        finally:
            await end_tasks([playing, waiting])
        if playing.cancelled():
            run.state.superseded += 1
            return None
        run.state.superseded = 0
        return playing.result()

    async def _wait_for_reason(self, run: ResourceRun) -> str:
        """Wait until a run has to end; return the reason."""
        changed = self._changed[run.ref]
        while True:
            await changed.wait()
            changed.clear()
            if reason := await self._reason(run):
                return reason

    async def _reason(self, run: ResourceRun) -> str:
        try:
            now = await self.read(run.ref)
        except ApiError as error:
            _log.warning("Cannot determine whether the run is superseded", error=str(error))
            return ""
        if now is not None and suspension(annotations_of(now)) is Suspension.CANCEL:
            return SUSPENDED
        if run.is_cleanup or not self.watch.supersede:
            return ""
        is_deleted = now is None or now["metadata"].get("deletionTimestamp")
        # A resource that no longer matches gets no further run, so the current one is completed.
        may_end = is_deleted or (
            run.state.superseded < _MAX_SUPERSEDED_IN_A_ROW
            and now is not None
            and is_selected(now, self.watch)
        )
        return supersede_reason(run.body, now, self.watch) if may_end else ""
