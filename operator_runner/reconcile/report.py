"""Report how a run went: conditions, a Kubernetes Event and one log line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias

import structlog

from operator_runner.core.durations import format_duration
from operator_runner.core.model import (
    Cause,
    Drift,
    EventSpec,
    Json,
    ObjectRef,
    RunOutcome,
    Stats,
    Trigger,
    Watch,
    describe,
    uid_of,
)
from operator_runner.core.object_diff import summarize
from operator_runner.core.operator_state import DriftEntry
from operator_runner.core.timetable import format_time
from operator_runner.kube.object_readiness import DependentsReadiness, is_change
from operator_runner.reconcile import conditions, drift, kstatus_conditions, reserved_fields
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.declared_status import result_of, result_of_error
from operator_runner.reconcile.declared_status_writer import DeclaredStatusWriter, StatusInputs
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from operator_runner.reconcile.idempotence import CURE, RepeatedChange
from operator_runner.reconcile.other_writers import OtherWriter, OtherWriters
from operator_runner.reconcile.preview import Preview
from operator_runner.reconcile.protocols import ClusterClient
from operator_runner.reconcile.request_annotations import SUSPEND_ANNOTATION
from operator_runner.reconcile.reserved_fields import ReservedField
from operator_runner.reconcile.schedule import INVALID, NO_SCHEDULE, ScheduleState
from operator_runner.reconcile.status import (
    ConditionsUpdate,
    StatusWriter,
    generation_of,
)

_log = structlog.get_logger(__name__)
_EVENT_MESSAGE_BYTES = 300
"""Maximum of a failure's message in an Event; the note of 1,024 bytes also has task and cause."""
_OTHER_WRITER_CURE = (
    "stop one of them, run replicas with --leader-elect, or separate them by WATCH_NAMESPACE or "
    "selector"
)

KstatusUpdate: TypeAlias = Callable[[Sequence[Json], int, datetime], list[Json]]
"""Adds the kstatus conditions to the others, for a generation and a time."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run to report: its resource as it was before the run, its causes and its start."""

    ref: ObjectRef
    body: Json
    causes: Sequence[Cause]
    started_at: datetime
    ended_at: datetime | None = None
    run_id: str = ""
    """Empty if no run was started."""
    status_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status that are written with the conditions; None removes a field."""
    schedule: ScheduleState = NO_SCHEDULE
    """The schedule of the resource at the end of the run."""

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, or until now."""
        end = self.ended_at or datetime.now(UTC)
        return round((end - self.started_at).total_seconds(), 3)

    def ended(self, outcome: RunOutcome) -> Self:
        """Return the run with the times of its play."""
        started_at = outcome.started or self.started_at
        return replace(self, started_at=started_at, ended_at=outcome.finished)

    def event(self, reason: str, note: str, *, warning: bool = False) -> EventSpec:
        """Return the Event about the end of the run."""
        return EventSpec(
            reason,
            note,
            warning,
            cause=_described(self.causes),
            duration_seconds=self.seconds,
            run_id=self.run_id,
        )


@dataclass(frozen=True, slots=True)
class _RunEnd:
    """The end of a run: its time, and what the expressions of a status see as `result`."""

    now: datetime
    result: Json


class Reporter:
    """Reports the runs of one watch. Every method raises ApiError."""

    def __init__(
        self,
        watch: Watch,
        cluster: ClusterClient,
        other_writers: OtherWriters,
        dependents: Callable[[ObjectRef], Sequence[Json]],
        *,
        readiness: Callable[[ObjectRef], DependentsReadiness],
        expressions: ExpressionConditions,
        on_drift: Callable[[ObjectRef, bool], None],
    ) -> None:
        """Write conditions only if the watch has `manageStatus`.

        `dependents` returns the objects that a resource owns, `readiness` theirs, `expressions`
        has those that fail, `on_drift` is that of `Dependencies`.
        """
        self._watch = watch
        self._manage_status = watch.manage_status
        self._kstatus = watch.kstatus
        self._readiness = readiness
        self._cluster = cluster
        self._status = StatusWriter(cluster, other_writers)
        self._declared = (
            DeclaredStatusWriter(
                watch.status,
                cluster,
                self._status,
                other_writers,
                dependents,
                readiness=readiness,
                expressions=expressions,
            )
            if watch.status is not None and watch.manage_status
            else None
        )
        self._expressions = expressions
        # Resources whose last run failed; without conditions, only this shows it.
        self._failing: set[ObjectRef] = set()
        self._on_drift = on_drift
        self._drifts: dict[ObjectRef, DriftEntry] = {}
        # What was logged about resources that are suspended.
        self._suspended: dict[ObjectRef, str] = {}

    def forget(self, ref: ObjectRef) -> None:
        """Drop the state of a deleted resource."""
        self._failing.discard(ref)
        self._suspended.pop(ref, None)
        self.forget_drift(ref)
        self._expressions.forget(ref)
        if self._declared is not None:
            self._declared.forget(ref)

    async def start(
        self, ref: ObjectRef, body: Json, fields: Mapping[str, Any] | None = None
    ) -> Json | None:
        """Report the start of a run; return the resource after it, None if it is deleted.

        `fields` are other fields of the status to write, see `StatusWriter.write`.
        """
        self._suspended.pop(ref, None)
        if not self._manage_status:
            return body
        now = datetime.now(UTC)
        generation = generation_of(body)

        def change(old: Sequence[Json]) -> list[Json]:
            # An operator that ends during the run has to repeat it.
            new = drift.without_record(conditions.started(old, generation, now))
            return kstatus_conditions.progressing(new, generation, now) if self._kstatus else new

        # No observedGeneration of the status: it is written at the end of the run.
        written = await self._status.write(ref, uid_of(body), change, body, fields)
        if written is None or generation_of(written) == generation:
            return written
        # Edited in between, and the run gets that. Once: some edit all the time.
        generation = generation_of(written)
        return await self._status.write(ref, uid_of(body), change, written)

    async def interrupted(self, ref: ObjectRef, body: Json, reason: str) -> None:
        """Report that a run was ended and no other follows, for this reason."""
        if self._manage_status:
            now, generation = datetime.now(UTC), generation_of(body)
            await self._status.write(
                ref,
                uid_of(body),
                lambda old: conditions.interrupted(old, reason, generation, now),
                body,
            )

    async def suspended(self, ref: ObjectRef, body: Json, finalizer: str) -> None:
        """Report that nothing runs until the annotation is removed.

        `finalizer` delays a deletion, empty without one.
        """
        message = _suspension_text(ref, finalizer)
        if message != self._suspended.get(ref):
            _log.info("Suspended", reason=message)
            self._suspended[ref] = message
        if not self._manage_status:
            return
        now, generation = datetime.now(UTC), generation_of(body)

        def change(old: Sequence[Json]) -> list[Json]:
            new = conditions.suspended(old, message, generation, now)
            return kstatus_conditions.suspended(new) if self._kstatus else new

        await self._status.write(ref, uid_of(body), change, body)

    async def resumed(self, ref: ObjectRef, body: Json) -> Json | None:
        """Report that a resource is no longer suspended; return it, None if it is deleted."""
        self._suspended.pop(ref, None)
        if not self._manage_status:
            return body
        return await self._status.write(ref, uid_of(body), conditions.resumed, body)

    async def success(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        """Report a successful run; return the resource after it, None if it is deleted.

        `current` is the resource if it is up to date, None if it has to be read.
        """
        assert outcome.stats is not None
        stats, requeue_after = outcome.stats, outcome.requeue_after
        fields = _counts(stats)
        note = f"Reconciled: {stats.ok} tasks ok, {stats.changes} changed"
        if requeue_after is not None:
            fields["requeue_after"] = format_duration(requeue_after)
            note = f"{note}; {conditions.waiting_text(requeue_after, outcome.awaited)}"
        _log.info("Reconciled", **fields, seconds=run.seconds)
        after = await self._put_conditions(run, outcome, current)
        if self._manage_status:
            is_known = conditions.is_successful if requeue_after is None else conditions.is_waiting
            was_reported = is_known(read_conditions(run.body))
        else:
            was_reported = run.ref not in self._failing
        self._failing.discard(run.ref)
        if after is not None and (stats.changes or not was_reported):
            await self._cluster.emit(after, run.event("Successful", note))
        return after

    async def deselected(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        """Report a deselection that succeeded; see `success`."""
        assert outcome.stats is not None
        stats, now = outcome.stats, outcome.finished or datetime.now(UTC)
        generation = generation_of(run.body)
        _log.info("Deselected", **_counts(stats), seconds=run.seconds)
        self._failing.discard(run.ref)
        after = await self._write(
            run,
            lambda old: conditions.deselected(old, outcome, generation, now),
            lambda new, _: kstatus_conditions.deselected(new),
            current,
            _RunEnd(now, result_of(outcome)),
        )
        if after is not None:
            note = f"No longer reconciled: {stats.ok} tasks ok, {stats.changes} changed"
            await self._cluster.emit(after, run.event("Deselected", note))
        return after

    def finalized(self, run: RunContext, finalizer: str) -> None:
        """Report a clean-up that succeeded, whose finalizer was removed."""
        _log.info("Finalized", finalizer=finalizer, seconds=run.seconds)

    async def failure(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        """Report a failed run and its failed tasks; see `success`."""
        first = outcome.failures[0]
        text = conditions.failure_line(outcome.failures, _EVENT_MESSAGE_BYTES)
        messages = dict.fromkeys(each.message for each in outcome.failures)
        fields = {"task": first.task, "path": first.path, "error": "\n".join(messages)}
        _log.error("Reconciliation failed", **fields, seconds=run.seconds)
        self._failing.add(run.ref)
        after = await self._put_conditions(run, outcome, current)
        await self._cluster.emit(after or run.body, run.event("Failed", text, warning=True))
        return after

    async def error(self, run: RunContext, message: str) -> None:
        """Report a resource that cannot be run until it is corrected."""
        _log.error("Reconciliation failed", error=message)
        await self.failed(run, message, kstatus_conditions.stalled)

    async def failed(
        self, run: RunContext, message: str, add_kstatus: KstatusUpdate = kstatus_conditions.failing
    ) -> None:
        """Report a failed reconcile in the status and as an Event, not in the log.

        The Event is emitted even if the status cannot be written.
        """
        now, generation = datetime.now(UTC), generation_of(run.body)
        self._failing.add(run.ref)
        self.forget_drift(run.ref)
        try:
            await self._write(
                run,
                lambda old: drift.without_record(conditions.failed(old, message, generation, now)),
                lambda new, generation: add_kstatus(new, generation, now),
                run.body,
                _RunEnd(now, result_of_error(message)),
            )
        finally:
            note = conditions.one_line(message)
            await self._cluster.emit(run.body, run.event("Failed", note, warning=True))

    async def dropped(self, body: Json, fields: Sequence[ReservedField]) -> None:
        """Report the fields of the spec that are not passed to the role."""
        paths, hint = reserved_fields.paths(fields), reserved_fields.hint(fields)
        _log.warning("Fields of the resource are not passed to the role", fields=paths, hint=hint)
        note = reserved_fields.note(fields)
        await self._cluster.emit(body, EventSpec("ReservedFieldNames", note, warning=True))

    async def invalid_schedule(self, body: Json, error: str) -> None:
        """Report a schedule that cannot be used."""
        _log.warning("Invalid schedule: the resource has no ticks", error=error)
        await self._cluster.emit(body, EventSpec(INVALID, error, warning=True))

    async def missed_tick(self, body: Json, tick: datetime) -> None:
        """Report a tick that is older than its deadline and does not run."""
        time = format_time(tick)
        _log.warning("Missed schedule", tick=time)
        note = f"Missed the tick of {time}: it is older than schedule.startingDeadline"
        await self._cluster.emit(body, EventSpec("MissedSchedule", note, warning=True))

    async def other_writer(self, body: Json, other: OtherWriter) -> None:
        """Report another operator that writes the conditions of the resources of this kind."""
        _log.warning(
            "Another operator writes the status of the same resources",
            manager=other.manager,
            first=other.first.isoformat(),
            last=other.last.isoformat(),
            hint=_OTHER_WRITER_CURE,
        )
        note = f"Another operator (manager {other.manager}) writes the status of this resource; "
        event = EventSpec("AnotherOperator", note + _OTHER_WRITER_CURE, warning=True)
        await self._cluster.emit(body, event)

    async def loop(self, ref: ObjectRef, echoes: Sequence[Cause]) -> None:
        """Emit an Event about a resource that triggers itself, by these causes."""
        body = await self._cluster.get(ref)
        if body is not None:
            note = loop_text(echoes)
            await self._cluster.emit(body, EventSpec("ReconcileLoop", note, warning=True))

    async def not_idempotent(self, run: RunContext, finding: RepeatedChange) -> None:
        """Report a task that changes the same fields in every run; `run` is the last one."""
        _log.warning(
            "Role is not idempotent",
            task=finding.task,
            object=str(finding.ref),
            fields=summarize(finding.paths),
            hint=CURE,
        )
        event = run.event("NotIdempotent", str(finding), warning=True)
        await self._cluster.emit(run.body, event)

    async def _put_conditions(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        now, generation = outcome.finished or datetime.now(UTC), generation_of(run.body)
        add_kstatus: KstatusUpdate
        if not outcome.successful:
            add_kstatus = kstatus_conditions.failing
        elif outcome.requeue_after is not None:
            add_kstatus = kstatus_conditions.waiting
        else:
            ready_when = self._watch.ready_when

            def add_kstatus(new: Sequence[Json], generation: int, now: datetime) -> list[Json]:
                readiness = self._readiness(run.ref)
                return kstatus_conditions.applied(new, generation, now, readiness, ready_when)

        return await self._write(
            run,
            lambda old: self._with_drift(
                conditions.finished(old, outcome, generation, now), run, outcome
            ),
            lambda new, generation: add_kstatus(new, generation, now),
            current,
            _RunEnd(now, result_of(outcome)),
        )

    def _with_drift(self, new: Sequence[Json], run: RunContext, outcome: RunOutcome) -> list[Json]:
        policy, now = drift.policy_of(run.body, self._watch), outcome.finished or datetime.now(UTC)
        applied = outcome.successful and outcome.requeue_after is None
        return drift.after_run(new, policy, generation_of(run.body), now, applied=applied)

    async def drift(self, run: RunContext, preview: Preview) -> None:
        """Report what a run that writes nothing has found; an Event only if that is new."""
        condition = drift.condition_of(preview, generation_of(run.body))
        before = self._drifts.pop(run.ref, DriftEntry(run.ref))
        if preview.failure:
            _log.warning("Cannot preview the resource", error=preview.failure)
            # The drift that was found before has not ended.
            entry = replace(before, failure=condition["message"])
        else:
            entry = DriftEntry(run.ref, drift.drift_text(preview.differences))
        is_changed = entry.text != before.text
        if is_changed:
            _log.info("Drift changed", drift=entry.text or "none")
        if entry.message:
            self._drifts[run.ref] = entry
        self._on_drift(run.ref, bool(entry.text))
        if self._manage_status:
            now = datetime.now(UTC)
            await self._status.write(
                run.ref,
                uid_of(run.body),
                lambda old: conditions.put_condition(list(old), condition, now),
                run.body,
            )
        if is_changed and entry.text:
            await self._cluster.emit(run.body, run.event(drift.DRIFTED, entry.text, warning=True))

    async def drift_ignored(self, ref: ObjectRef, body: Json) -> None:
        """Report that a run was left out that would only correct drift."""
        self.forget_drift(ref)
        if self._manage_status:
            now, generation = datetime.now(UTC), generation_of(body)
            await self._status.write(
                ref,
                uid_of(body),
                lambda old: drift.after_run(old, Drift.IGNORE, generation, now, applied=True),
                body,
            )

    def drifts(self) -> Sequence[DriftEntry]:
        """Return the drift of resources since their last run that wrote."""
        return tuple(self._drifts.values())

    def forget_drift(self, ref: ObjectRef) -> None:
        """Drop the drift of a resource: what is corrected or ignored is new if it differs again."""
        self._drifts.pop(ref, None)
        self._on_drift(ref, False)

    async def _write(
        self,
        run: RunContext,
        update: ConditionsUpdate,
        add_kstatus: Callable[[Sequence[Json], int], list[Json]],
        current: Json | None,
        end: _RunEnd,
    ) -> Json | None:
        """Write conditions by `update` and, with `kstatus`, `add_kstatus`, and the run's fields.

        Without `manageStatus` nothing is written. Returns the resource as it is then.
        """
        if not self._manage_status:
            found = current or await self._cluster.get(run.ref)
            return found if found is not None and uid_of(found) == uid_of(run.body) else None
        generation = generation_of(run.body)
        fields = {**run.status_fields, **conditions.observed(generation)}

        def change(old: Sequence[Json]) -> list[Json]:
            new = run.schedule.put_condition(update(old), generation, end.now)
            return self._expressions.put_condition(new, run.ref, generation, end.now)

        def finish(new: Sequence[Json]) -> list[Json]:
            return add_kstatus(new, generation) if self._kstatus else list(new)

        if self._declared is None:
            return await self._status.write(
                run.ref, uid_of(run.body), lambda old: finish(change(old)), current, fields
            )
        inputs = StatusInputs(
            run.ref, run.body, end.result, run.schedule.expression_value(), end.now, finish
        )
        return await self._declared.write(inputs, change, fields, current)


def _suspension_text(ref: ObjectRef, finalizer: str) -> str:
    """Return the message of the condition Suspended: the cause, what waits, and a hint."""
    place = f" --namespace {ref.namespace}" if ref.namespace else ""
    resume = f"operator-runner resume {ref.full_name}{place}"
    text = f"No run starts because of the annotation {SUSPEND_ANNOTATION}"
    if finalizer:
        text = f"{text}, and the deletion waits for the finalizer {finalizer}"
    return f"{text}; to resume: {resume}"


def _counts(stats: Stats) -> dict[str, Any]:
    """Return the counts of tasks for a log line."""
    return {"ok": stats.ok, "changed": stats.changes, "skipped": stats.skipped}


def _described(causes: Sequence[Cause]) -> str:
    """Describe causes without attempt numbers, so that Events of retries form one series."""
    return describe(
        replace(cause, detail="") if cause.trigger is Trigger.RETRY else cause for cause in causes
    )


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
