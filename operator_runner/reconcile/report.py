"""Report how a run went: conditions, a Kubernetes Event and one log line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from operator_runner.core.durations import format_duration
from operator_runner.core.model import (
    Cause,
    EventSpec,
    Json,
    ObjectRef,
    Stats,
    Trigger,
    Watch,
    generation_of,
    uid_of,
)
from operator_runner.kube.object_readiness import is_change
from operator_runner.reconcile import conditions as base
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.declared_status_writer import DeclaredStatusWriter
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import REPORTS, Phase, ResourceRun
from operator_runner.reconcile.status import StatusWriter

_log = structlog.get_logger(__name__)
_EVENT_MESSAGE_BYTES = 300
"""Maximum of a failure's message in an Event; the note of 1,024 bytes also has task and cause."""


class Reporter:
    """Reports the runs of one watch. Every coroutine raises ApiError."""

    def __init__(self, watch: Watch, dependencies: Dependencies) -> None:
        """Write conditions only if the watch has `manageStatus`."""
        self._manage_status = watch.manage_status
        self._cluster = dependencies.cluster
        self.status = StatusWriter(self._cluster, dependencies.other_writers)
        self._declared: DeclaredStatusWriter | None = None
        if watch.status is not None and watch.manage_status:
            self._declared = DeclaredStatusWriter(watch.status, dependencies, self.status)

    async def write(
        self, run: ResourceRun, phase: Phase, current: Json | None = None
    ) -> Json | None:
        """Write the conditions of a phase; return the resource as it is then, None if deleted.

        In the phases of `REPORTS`, `current` is the resource if it is up to date, None if it has to
        be read, and the declared status is written too. Without `manageStatus` nothing is written.
        """
        ended = None if run.outcome is None else run.outcome.finished
        run.now = ended or datetime.now(UTC)

        def change(old: Sequence[Json]) -> list[Json]:
            new = _base_conditions(run, phase, old)
            for observer in run.acting():
                new = observer.conditions(run, phase, new)
            return new

        def finish(new: Sequence[Json]) -> list[Json]:
            result = list(new)
            for observer in run.acting():
                result = observer.summarize(run, phase, result)
            return result

        is_end = phase in REPORTS
        if not is_end:
            current = run.body
        if not self._manage_status:
            found = current or await self._cluster.get(run.ref)
            return found if found is not None and uid_of(found) == run.uid else None
        # Where nothing was run, no tick was handled or missed.
        fields = {} if is_end and run.outcome is None else run.fields
        if is_end:
            # Not at the start: `kubectl wait` would return before the run.
            fields = {**fields, **base.observed(run.generation)}
            if self._declared is not None:
                return await self._declared.write(run, change, finish, fields, current)
        return await self.status.write(
            run.ref, run.uid, lambda old: finish(change(old)), current, fields
        )

    async def start(self, run: ResourceRun) -> Json | None:
        """Report the start of a run; return the resource after it, None if it is deleted."""
        written = await self.write(run, Phase.STARTED)
        if written is not None and generation_of(written) != run.generation:
            # Edited in between, and the run gets that. Once: some edit all the time.
            run.body = written
            return await self.write(run, Phase.STARTED)
        return written

    async def success(self, run: ResourceRun, current: Json | None) -> Json | None:
        """Report a successful run; see `write`."""
        assert run.outcome is not None
        assert run.outcome.stats is not None
        stats, requeue_after = run.outcome.stats, run.outcome.requeue_after
        counts = _counts(stats)
        note = f"Reconciled: {stats.ok} tasks ok, {stats.changes} changed"
        if requeue_after is not None:
            counts["requeue_after"] = format_duration(requeue_after)
            note = f"{note}; {base.waiting_text(requeue_after, run.outcome.awaited)}"
        _log.info("Reconciled", **counts, seconds=run.seconds)
        after = await self.write(run, Phase.FINISHED, current)
        if self._manage_status:
            is_known = base.is_successful if requeue_after is None else base.is_waiting
            was_reported = is_known(read_conditions(run.body))
        else:
            was_reported = not run.state.is_failing
        run.state.is_failing = False
        if after is not None and (stats.changes or not was_reported):
            await self._cluster.emit(after, run.event("Successful", note))
        return after

    async def deselected(self, run: ResourceRun, current: Json | None) -> Json | None:
        """Report a deselection that succeeded; see `write`."""
        assert run.outcome is not None
        assert run.outcome.stats is not None
        stats = run.outcome.stats
        _log.info("Deselected", **_counts(stats), seconds=run.seconds)
        run.state.is_failing = False
        after = await self.write(run, Phase.DESELECTED, current)
        if after is not None:
            note = f"No longer reconciled: {stats.ok} tasks ok, {stats.changes} changed"
            await self._cluster.emit(after, run.event("Deselected", note))
        return after

    async def failure(self, run: ResourceRun, current: Json | None) -> Json | None:
        """Report a failed run and its failed tasks; see `write`."""
        assert run.outcome is not None
        first = run.outcome.failures[0]
        text = base.failure_line(run.outcome.failures, _EVENT_MESSAGE_BYTES)
        messages = dict.fromkeys(each.message for each in run.outcome.failures)
        fields = {"task": first.task, "path": first.path, "error": "\n".join(messages)}
        _log.error("Reconciliation failed", **fields, seconds=run.seconds)
        run.state.is_failing = True
        after = await self.write(run, Phase.FINISHED, current)
        await self._cluster.emit(after or run.body, run.event("Failed", text, warning=True))
        return after

    async def failed(self, run: ResourceRun, phase: Phase = Phase.FAILED) -> None:
        """Report the message of a reconcile without a run in the status and as an Event.

        Not in the log. The Event is emitted even if the status cannot be written.
        """
        run.state.is_failing = True
        try:
            await self.write(run, phase, run.body)
        finally:
            note = base.one_line(run.message)
            await self._cluster.emit(run.body, run.event("Failed", note, warning=True))

    async def loop(self, ref: ObjectRef, echoes: Sequence[Cause]) -> None:
        """Emit an Event about a resource that triggers itself, by these causes."""
        body = await self._cluster.get(ref)
        if body is not None:
            note = loop_text(echoes)
            await self._cluster.emit(body, EventSpec("ReconcileLoop", note, warning=True))


def _base_conditions(run: ResourceRun, phase: Phase, old: Sequence[Json]) -> list[Json]:
    """Return the conditions with those of ansible-operator: Running, Successful and Failure."""
    generation, outcome, now = run.generation, run.outcome, run.now
    match phase:
        case Phase.STARTED:
            return base.started(old, generation, now)
        case Phase.INTERRUPTED:
            return base.interrupted(old, run.message, generation, now)
        case Phase.FINISHED if outcome is not None:
            return base.finished(old, outcome, generation, now)
        case Phase.DESELECTED if outcome is not None:
            return base.deselected(old, outcome, generation, now)
        case Phase.FAILED | Phase.STALLED:
            return base.failed(old, run.message, generation, now)
        case _:
            return list(old)


def _counts(stats: Stats) -> dict[str, Any]:
    """Return the counts of tasks for a log line."""
    return {"ok": stats.ok, "changed": stats.changes, "skipped": stats.skipped}


def loop_text(echoes: Sequence[Cause]) -> str:
    """Return the note of the Event ReconcileLoop: objects and fields, cause and hint."""
    if not echoes:
        return (
            "Throttled: annotations reconcile-period of this namespace take the whole share of "
            "periodic runs; set longer periods, or --annotated-period-share of the operator"
        )
    changes = "; ".join(dict.fromkeys(cause.detail for cause in echoes))
    if all(is_change(cause.detail) for cause in echoes):
        hint = "the role's own writes change the readiness; write only what differs"
    elif any(cause.trigger is Trigger.DEPENDENT for cause in echoes):
        hint = "another controller reverts the role's change; only one may manage the field"
    else:
        hint = "the role edits its own resource; write results to the status instead"
    return f"Throttled: each run triggers another: {changes}; {hint}"
