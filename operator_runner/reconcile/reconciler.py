"""Reconcile one resource: read it, decide, run the play, report the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from operator_runner.core.errors import Conflict, RunError
from operator_runner.core.json_bounds import failure_reason
from operator_runner.core.model import (
    Cause,
    Drift,
    Json,
    ObjectRef,
    RunOutcome,
    Trigger,
    Watch,
    uid_of,
)
from operator_runner.core.operator_state import DriftEntry
from operator_runner.core.resource_versions import may_be_older
from operator_runner.core.settings import AnsibleSettings
from operator_runner.core.timetable import NEXT_FIELD
from operator_runner.reconcile.annotation_overrides import clamp_period, read_overrides
from operator_runner.reconcile.conditions import (
    failure_line,
    is_deselected,
    is_failed,
    is_successful,
    is_suspended,
    is_waiting,
    read_conditions,
)
from operator_runner.reconcile.decide import (
    Action,
    AddMetadata,
    Ignore,
    Run,
    RunDeselection,
    Suspend,
    decide,
)
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.drift import (
    ON_REQUEST,
    has_change,
    is_drift_run,
    is_recorded,
    policy_of,
)
from operator_runner.reconcile.dropped_fields import DroppedFields
from operator_runner.reconcile.idempotence import IdempotenceCheck, runs_needed
from operator_runner.reconcile.metadata_patches import (
    change_metadata,
    without_annotation,
    without_finalizer,
)
from operator_runner.reconcile.play import PendingRun, PlayRunner
from operator_runner.reconcile.preview import Preview
from operator_runner.reconcile.report import Reporter, RunContext
from operator_runner.reconcile.request_acknowledgement import acknowledge_request
from operator_runner.reconcile.results import (
    Failed,
    Gone,
    NoRun,
    ReconcileResult,
    Succeeded,
    Superseded,
)
from operator_runner.reconcile.schedule import (
    NO_SCHEDULE,
    ScheduleState,
    ScheduleTracker,
)
from operator_runner.reconcile.status import generation_of
from operator_runner.reconcile.superseding import SupersedeMonitor

_log = structlog.get_logger(__name__)
_REQUEST_MESSAGE_BYTES = 600
"""Maximum of each failure's message in the answer to a request."""
_TEMPLATE_WARNING = "Text of the resource is evaluated as a template"


class Reconciler:
    """Reconciles the resources of one watch; calls for one resource must not overlap."""

    def __init__(
        self, watch: Watch, dependencies: Dependencies, ansible: AnsibleSettings, period: timedelta
    ) -> None:
        """`period` is the resync period of resources without one in watch or annotation."""
        self._watch = watch
        self._deps = dependencies
        self._period = clamp_period(
            watch.reconcile_period if watch.reconcile_period is not None else period
        )
        self._reporter = Reporter(
            watch,
            dependencies.cluster,
            dependencies.other_writers,
            dependencies.dependents,
            readiness=dependencies.readiness,
            expressions=dependencies.expressions,
            on_drift=dependencies.on_drift,
        )
        self._dropped_fields = DroppedFields(
            watch, dependencies.variable_names, self._reporter.dropped
        )
        self._plays = PlayRunner(dependencies, ansible)
        self._superseding = SupersedeMonitor(
            watch, dependencies.cluster.get, dependencies.is_selected
        )
        self._idempotence = IdempotenceCheck()
        self._schedule = ScheduleTracker(watch, dependencies.timetable, dependencies.clock)
        # Generation of the last successful run.
        self._succeeded: dict[ObjectRef, int] = {}
        # Resources with a change or a run that did not succeed: retries have no other causes.
        self._unapplied: set[ObjectRef] = set()
        # uid of the resource that the other mappings are about.
        self._uids: dict[ObjectRef, str] = {}
        # Generation of the resource as it was read last.
        self._generations: dict[ObjectRef, int] = {}

    def on_event(self, ref: ObjectRef, cause: Cause) -> None:
        """Record an event; with `supersede` it may end the current run of the resource."""
        self._superseding.on_event(ref, cause)

    async def reconcile(self, ref: ObjectRef, causes: Sequence[Cause]) -> ReconcileResult:
        """Reconcile the resource once. Raises ApiError, after which the call can be repeated.

        Fenced if this process may have lost its Lease since the call.
        """
        if has_change(causes):
            self._unapplied.add(ref)
        with self._superseding.watching(ref), self._deps.fences.reconciling(ref):
            try:
                result = await self._reconcile(ref, causes)
            except _ResourceDeleted:
                await self._forget(ref)
                result = Gone()
            is_idle = isinstance(result, Gone | NoRun)
            current = "" if is_idle else self._uids.get(ref, "")
            await self._deps.executor.end_unadopted(ref, current)
            return result

    async def _reconcile(self, ref: ObjectRef, causes: Sequence[Cause]) -> ReconcileResult:
        body = await self._read(ref)
        while body is not None:
            if not self._deps.claim(uid_of(body)):
                _log.debug("Skipping reconciliation", reason="another replica has the resource")
                self.release(ref)
                return NoRun()
            match self._decide(body):
                case Ignore(reason):
                    _log.debug("Skipping reconciliation", reason=reason)
                    if self._superseding.forget(ref):
                        await self._reporter.interrupted(ref, body, reason)
                    return NoRun(reason)
                case Suspend(finalizer):
                    self._superseding.forget(ref)
                    self._deps.on_suspension(ref, True)
                    await self._reporter.suspended(ref, body, finalizer)
                    return NoRun("Resource is suspended")
                case AddMetadata() | Run() | RunDeselection() if fault := failure_reason(body):
                    self._unapplied.add(ref)
                    context = RunContext(ref, body, causes, datetime.now(UTC))
                    # Each request takes the API server seconds; other tenants need the slot.
                    async with self._deps.without_slot(ref):
                        await self._reporter.error(context, fault)
                        answer = Failed(message=fault)
                        await acknowledge_request(self._deps.cluster, ref, body, answer)
                    return NoRun(fault, failed=True)
                case Run(cleanup=False) if policy := self._drift_policy(ref, body, causes):
                    return await self._handle_drift(ref, body, causes, policy)
                case AddMetadata() as missing:
                    body = await self._add_metadata(ref, body, missing)
                case Run() | RunDeselection() as action:
                    return await self._run_action(action, ref, body, causes)
        raise _ResourceDeleted

    async def _run_action(
        self, action: Run | RunDeselection, ref: ObjectRef, body: Json, causes: Sequence[Cause]
    ) -> ReconcileResult:
        self._deps.other_writers.read(body)
        pending = PendingRun.of(action, ref, body, self._watch, causes)
        with structlog.contextvars.bound_contextvars(run_id=pending.run_id):
            result = await self._run(pending)
        await acknowledge_request(self._deps.cluster, ref, body, result, pending.run_id)
        return result

    def _next_period(self, period: timedelta | None) -> tuple[timedelta | None, bool]:
        """Return the time until the next run, and whether `period` of the resource shortens it."""
        if period is None:
            return self._period or None, False
        own = clamp_period(period)
        return own or None, bool(own) and (not self._period or own < self._period)

    def _drift_policy(self, ref: ObjectRef, body: Json, causes: Sequence[Cause]) -> Drift | None:
        """Return the policy if a run would only correct drift, and is not to; else None."""
        policy = policy_of(body, self._watch)
        if policy is Drift.ENFORCE or ref in self._unapplied or ON_REQUEST in causes:
            return None
        has_tick = self._schedule.state(ref, body).ticks.due is not None
        if has_tick or not is_drift_run(body, self._succeeded.get(ref)):
            return None
        return policy

    def drifts(self) -> Sequence[DriftEntry]:
        """Return the resources with drift, or for which that is unknown."""
        return self._reporter.drifts()

    async def _handle_drift(
        self, ref: ObjectRef, body: Json, causes: Sequence[Cause], policy: Drift
    ) -> ReconcileResult:
        """Report drift, with a run that writes nothing, or ignore it."""
        if policy is Drift.IGNORE or self._deps.preview is None:
            await self._reporter.drift_ignored(ref, body)
            return NoRun("Drift is ignored")
        context = RunContext(ref, body, causes, datetime.now(UTC))
        preview = await self._deps.preview(body, self._watch)
        await self._reporter.drift(context, preview)
        return Succeeded(self._period or None, Trigger.PERIOD)

    async def _read(self, ref: ObjectRef) -> Json | None:
        """Return the resource, None if it is deleted; drop the state of one that was recreated."""
        body = await self._deps.cluster.get(ref)
        if body is not None and self._uids.setdefault(ref, uid_of(body)) != uid_of(body):
            await self._forget(ref)
            self._deps.on_replaced(ref)
            self._uids[ref] = uid_of(body)
        if body is not None:
            self._generations[ref] = generation_of(body)
        return body

    async def _add_metadata(self, ref: ObjectRef, body: Json, missing: AddMetadata) -> Json | None:
        """Return the resource after the patch, or with the concurrent changes of another client."""
        try:
            return await self._deps.cluster.patch_metadata(body, missing.patch(body["metadata"]))
        except Conflict:
            return await self._read(ref)

    def _decide(self, body: Json) -> Action:
        return decide(
            body,
            self._watch,
            selected=self._deps.is_selected(body, self._watch),
            deselected=self._deps.is_deselected(body, self._watch),
        )

    async def _forget(self, ref: ObjectRef) -> None:
        """Remove the state and the files of a deleted resource."""
        self.release(ref)
        self._deps.records.forget(ref)
        await self._deps.executor.forget(ref)

    def release(self, ref: ObjectRef) -> None:
        """Drop what is known of a resource that another replica runs from now on."""
        self._deps.other_writers.forget(self._uids.pop(ref, ""))
        self._deps.on_suspension(ref, False)
        self._generations.pop(ref, None)
        self._succeeded.pop(ref, None)
        self._unapplied.discard(ref)
        self._dropped_fields.forget(ref)
        self._idempotence.forget(ref)
        self._schedule.forget(ref)
        self._superseding.forget(ref)
        self._reporter.forget(ref)

    async def report_failure(self, ref: ObjectRef, causes: Sequence[Cause], message: str) -> None:
        """Report an aborted reconcile in the status and as an Event. Raises ApiError."""
        body = await self._deps.cluster.get(ref)
        if body is None:
            return
        # The resource may have been edited since, and this failure is not about that.
        generation = self._generations.get(ref, generation_of(body))
        failed = body | {"metadata": body["metadata"] | {"generation": generation}}
        context = RunContext(ref, failed, causes, datetime.now(UTC))
        match self._drift_policy(ref, body, causes):
            case Drift.IGNORE:
                return
            case Drift.WARN:  # the next run writes nothing either, so it could not end a failure
                await self._reporter.drift(context, Preview(ref, failure=message))
            case _:
                self._unapplied.add(ref)
                await self._reporter.failed(context, message)
                await acknowledge_request(self._deps.cluster, ref, body, Failed(message=message))

    async def report_loop(self, ref: ObjectRef, echoes: Sequence[Cause]) -> None:
        """Emit an Event about a resource that triggers itself, by these causes. Raises ApiError."""
        await self._reporter.loop(ref, echoes)

    async def _run(self, pending: PendingRun) -> ReconcileResult:
        ref, body = pending.ref, pending.body
        self._unapplied.add(ref)
        started_at = datetime.now(UTC)
        self._deps.on_suspension(ref, False)
        self._reporter.forget_drift(ref)
        overrides = read_overrides(body, as_job=self._watch.job is not None)
        context = RunContext(ref, body, pending.causes, started_at, run_id=pending.run_id)
        if overrides.error:
            await self._reporter.error(context, overrides.error)
            return Failed(message=overrides.error)
        try:
            content = pending.watch.content_for(cleanup=pending.cleanup)
            excluded = await self._dropped_fields.find(ref, body, content)
        except RunError as error:
            message = f"Unable to run reconciliation: {error}"
            _log.error("Reconciliation failed", error=message)
            await self._reporter.failed(context, message)
            return Failed(message=message)
        is_cleanup = pending.cleanup or pending.deselection
        schedule = NO_SCHEDULE if is_cleanup else self._schedule.state(ref, body)
        body = await self._report_start(ref, body, pending.causes, schedule)
        context = RunContext(ref, body, pending.causes, started_at, run_id=pending.run_id)
        # Before the run, which begins a new record of what it writes.
        needed = 0
        if schedule.ticks.due is None:
            needed = runs_needed(pending.causes, partial(self._deps.writes.is_echo, ref))
        if (other := self._deps.other_writers.take(ref.gvk)) is not None:
            await self._reporter.other_writer(body, other)
        # The role may write the status too.
        self._deps.other_writers.forget(uid_of(body))
        pending = replace(pending, body=body, excluded=excluded, schedule=schedule)
        play = self._deps.fences.of(ref).guard(partial(self._plays.run, pending, overrides))
        outcome = await self._superseding.run(ref, body, play, supersede=not is_cleanup)
        if outcome is None:
            self._succeeded.pop(ref, None)
            return Superseded()
        context = context.ended(outcome)
        if is_cleanup and outcome.successful and outcome.requeue_after is None:
            return await self._cleaned_up(context, pending, outcome)
        if outcome.successful:
            self._schedule.succeeded(ref, schedule.ticks.due)
        result = await self._report_outcome(context, outcome, overrides.period)
        if outcome.successful and not is_cleanup:
            await self._check_idempotence(context, pending, needed)
        return result

    async def _report_start(
        self, ref: ObjectRef, body: Json, causes: Sequence[Cause], schedule: ScheduleState
    ) -> Json:
        """Report the start of a run that may change something; return the resource after it."""
        ticks = schedule.ticks
        has_tick = ticks.due is not None or ticks.missed is not None
        before = read_conditions(body)
        # Conditions that change with each attempt of a failing run would flap.
        is_retry = all(cause.trigger is Trigger.RETRY for cause in causes)
        is_known = is_retry and is_failed(before, generation_of(body))
        is_steady = is_known or self._is_steady(ref, body, causes)
        if has_tick or not is_steady or is_recorded(before):
            # A tick that was missed is reported once: the status then announces a later one.
            fields = schedule.status_fields() if ticks.missed is not None else {}
            body = _existing(await self._reporter.start(ref, body, fields))
        elif is_suspended(before):
            body = _existing(await self._reporter.resumed(ref, body))
        if schedule.is_new_error(read_conditions(body)):
            await self._reporter.invalid_schedule(body, schedule.error)
        if ticks.missed is not None:
            self._deps.on_missed_tick(self._watch.gvk)
            await self._reporter.missed_tick(body, ticks.missed)
        return body

    async def _check_idempotence(self, run: RunContext, pending: PendingRun, needed: int) -> None:
        """Report fields that the role changes in every run, once until that ends."""
        changes = self._deps.writes.take_changes(run.ref)
        verdict = self._idempotence.run_ended(run.ref, changes, pending.tasks, needed)
        self._deps.on_idempotence(run.ref, verdict.is_idempotent)
        for finding in verdict.findings:
            await self._reporter.not_idempotent(run, finding)

    async def _report_outcome(
        self, context: RunContext, outcome: RunOutcome, period: timedelta | None
    ) -> Succeeded | Failed:
        """Report the outcome of a run; `period` is that of the resource's annotation, if any."""
        ref, current = context.ref, self._current(context.ref, context.body)
        schedule = self._schedule.state(ref, context.body)
        fields = {**context.status_fields, **schedule.status_fields()}
        context = replace(context, status_fields=fields, schedule=schedule)
        if not outcome.successful:
            self._succeeded.pop(ref, None)
            _existing(await self._reporter.failure(context, outcome, current))
            text = failure_line(outcome.failures, _REQUEST_MESSAGE_BYTES)
            return Failed(outcome.timed_out, outcome.load_failed, text)
        if (catching_up := self._deps.catching_up(ref)) is not None:
            self._deps.free_slot(ref)
            await catching_up
        self._schedule.recorded(
            ref, _existing(await self._reporter.success(context, outcome, current))
        )
        self._succeeded[ref] = generation_of(context.body)
        if outcome.requeue_after is not None:
            return Succeeded(outcome.requeue_after, Trigger.REQUEUE)
        self._unapplied.discard(ref)
        after, by_resource = self._next_period(period)
        if outcome.retry_after is not None:
            after = outcome.retry_after if after is None else min(after, outcome.retry_after)
        return Succeeded(after, Trigger.PERIOD, by_resource)

    def _current(self, ref: ObjectRef, body: Json) -> Json | None:
        """Return `body` if no event showed a newer version of the resource, else None.

        Also compared with the writes of the run, whose events may arrive later: if nothing is
        patched, no conflict of resourceVersions would show that `body` is stale.
        """
        version = body["metadata"]["resourceVersion"]
        latest, written = self._deps.latest_version(ref), self._deps.writes.own_version(ref)
        if not latest or any(may_be_older(version, each) for each in (latest, written) if each):
            return None
        return body

    def _is_steady(self, ref: ObjectRef, body: Json, causes: Sequence[Cause]) -> bool:
        """Return whether the run is expected to change nothing, so its start is not reported."""
        conditions = read_conditions(body)
        if is_deselected(conditions) or self._deps.is_deselected(body, self._watch):
            return False
        if body["metadata"].get("deletionTimestamp"):
            # A deletion is a new generation, so the last run of it was a clean-up.
            return is_waiting(conditions) and self._succeeded.get(ref) == generation_of(body)
        if not (is_successful(conditions) or is_waiting(conditions)):
            return False
        if not generation_of(body) and any(cause.trigger is Trigger.SPEC for cause in causes):
            return False
        if ref in self._succeeded:
            return self._succeeded[ref] == generation_of(body)
        return all(cause.trigger is Trigger.START for cause in causes)

    async def _cleaned_up(
        self, run: RunContext, pending: PendingRun, outcome: RunOutcome
    ) -> NoRun | Succeeded:
        """Finish a clean-up that succeeded."""
        if pending.deselection:
            return await self._deselected(run, outcome)
        await self._remove_finalizer(run)
        return NoRun()

    async def _remove_finalizer(self, run: RunContext) -> None:
        """Remove our finalizer from the resource of a clean-up."""
        assert self._watch.finalizer is not None
        name = self._watch.finalizer.name
        change = partial(without_finalizer, name=name)
        if await change_metadata(self._deps.cluster, run.ref, uid_of(run.body), change):
            self._reporter.finalized(run, name)

    async def _deselected(self, run: RunContext, outcome: RunOutcome) -> Succeeded:
        """Report a deselection that succeeded, and remove the annotation from its resource.

        In this order: a process that ends in between runs the deselection again.
        """
        assert self._watch.deselection is not None
        self._succeeded.pop(run.ref, None)
        self._superseding.forget(run.ref)
        if self._watch.schedule is not None:
            run = replace(run, status_fields={NEXT_FIELD: None})
        _existing(await self._reporter.deselected(run, outcome, self._current(run.ref, run.body)))
        change = partial(without_annotation, name=self._watch.deselection.annotation)
        await change_metadata(self._deps.cluster, run.ref, uid_of(run.body), change)
        return Succeeded(None, Trigger.PERIOD)


class _ResourceDeleted(Exception):
    """The resource was deleted during its reconcile; a new one may have its name."""


def _existing(body: Json | None) -> Json:
    if body is None:
        raise _ResourceDeleted
    return body
