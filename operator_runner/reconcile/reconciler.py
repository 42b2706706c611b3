"""Reconcile one resource: read, decide, run, report, requeue.

Every feature is an observer, which acts at the moments of `observer`; `observers` lists them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import structlog

from operator_runner.config.watches import selection
from operator_runner.core.errors import Conflict, RunError
from operator_runner.core.json_bounds import failure_reason
from operator_runner.core.model import (
    Cause,
    Json,
    ObjectRef,
    RunOutcome,
    Trigger,
    Watch,
    generation_of,
    may_be_older,
    uid_of,
)
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.annotations import clamp_period, read_overrides
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
    AddMetadata,
    Ignore,
    Run,
    RunDeselection,
    decide,
    has_change,
)
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.metadata_patches import (
    change_metadata,
    without_annotation,
    without_finalizer,
)
from operator_runner.reconcile.observer import Phase, ResourceRun
from operator_runner.reconcile.observers import observers_of
from operator_runner.reconcile.play import PlayRunner
from operator_runner.reconcile.report import Reporter
from operator_runner.reconcile.results import (
    Failed,
    Gone,
    NoRun,
    ReconcileResult,
    Succeeded,
    Superseded,
)
from operator_runner.reconcile.superseding import SupersedeMonitor

_log = structlog.get_logger(__name__)
_REQUEST_MESSAGE_BYTES = 600
"""Maximum of each failure's message in the answer to a request."""


class Reconciler:
    """Reconciles the resources of one watch; calls for one resource must not overlap."""

    def __init__(
        self, watch: Watch, dependencies: Dependencies, ansible: AnsibleSettings, period: timedelta
    ) -> None:
        """`period` is the resync period of resources without one in watch or annotation."""
        self._watch = watch
        self._deps = dependencies
        self._states = dependencies.states
        own = watch.reconcile_period
        self._period = clamp_period(period if own is None else own) or None
        self._reporter = Reporter(watch, dependencies)
        self._observers = observers_of(watch, dependencies, self._reporter, ansible, self._period)
        self._plays = PlayRunner(dependencies, ansible)
        self._superseding = SupersedeMonitor(watch, dependencies.cluster.get)

    def on_event(self, ref: ObjectRef, cause: Cause) -> None:
        """Record an event; with `supersede` it may end the current run of the resource."""
        self._superseding.on_event(ref, cause)

    async def reconcile(self, ref: ObjectRef, causes: Sequence[Cause]) -> ReconcileResult:
        """Reconcile the resource once. Raises ApiError, after which the call can be repeated.

        Fenced if this process may have lost its Lease since the call.
        """
        if has_change(causes):
            self._states.of(ref).is_unapplied = True
        with self._superseding.watching(ref), self._deps.fences.reconciling(ref):
            try:
                result = await self._reconcile(ref, causes)
            except _ResourceDeleted:
                await self._forget(ref)
                result = Gone()
            is_idle = isinstance(result, Gone | NoRun)
            current = "" if is_idle else self._states.of(ref).uid
            await self._deps.executor.end_unadopted(ref, current)
            return result

    async def _reconcile(self, ref: ObjectRef, causes: Sequence[Cause]) -> ReconcileResult:
        """Read, decide, run, report; the dispatcher requeues by the result."""
        run = await self._read(ref, causes)
        while run is not None:
            if (held := await self._held(run)) is not None:
                return held
            if isinstance(run.action, AddMetadata):
                run = await self._add_metadata(run, run.action)
                continue
            run.run_id = secrets.token_hex(8)
            with structlog.contextvars.bound_contextvars(run_id=run.run_id):
                return await self._ended(run, await self._run(run))
        _log.debug("Skipping reconciliation", reason="another replica has the resource")
        return NoRun()

    # Read and decide -----------------------------------------------------------------

    async def _read(self, ref: ObjectRef, causes: Sequence[Cause]) -> ResourceRun | None:
        """Read a resource; see `_decided`. Drop the state of one that was recreated."""
        body = _existing(await self._deps.cluster.get(ref))
        state = self._states.of(ref)
        if state.uid not in ("", uid_of(body)):
            await self._forget(ref)
            self._deps.queue.forget(ref)
            state = self._states.of(ref)
        state.uid, state.generation = uid_of(body), generation_of(body)
        return self._decided(ref, body, causes)

    def _decided(self, ref: ObjectRef, body: Json, causes: Sequence[Cause]) -> ResourceRun | None:
        """Return the next step for a resource; None if another replica has it."""
        if self._deps.claim is not None and not self._deps.claim(uid_of(body)):
            return None
        action = decide(
            body,
            self._watch,
            selected=selection.is_selected(body, self._watch),
            deselected=selection.is_deselected(body, self._watch),
        )
        is_deselection = isinstance(action, RunDeselection)
        watch = _deselecting(self._watch) if is_deselection else self._watch
        state = self._states.of(ref)
        return ResourceRun(ref, body, causes, watch, state, action, observers=self._observers)

    async def _held(self, run: ResourceRun) -> ReconcileResult | None:
        """Return the result if nothing is to be run, or an observer holds the run."""
        action = run.action
        if not isinstance(action, Run | RunDeselection | AddMetadata):
            was_superseded, run.state.superseded = run.state.superseded > 0, 0
            if isinstance(action, Ignore):
                _log.debug("Skipping reconciliation", reason=action.reason)
                if was_superseded:
                    run.message = action.reason
                    await self._reporter.write(run, Phase.INTERRUPTED)
                return NoRun(action.reason)
        elif fault := failure_reason(run.body):
            # Each request takes the API server seconds; other tenants need the slot.
            async with self._deps.queue.without_slot(run.ref):
                await self._refuse(run, fault)
                return await self._ended(run, NoRun(fault, failed=True))
        for observer in run.acting():
            if (held := await observer.hold(run)) is not None:
                return held
        return None

    async def _add_metadata(self, run: ResourceRun, missing: AddMetadata) -> ResourceRun | None:
        """Add what is missing to the resource, and decide again."""
        patch = missing.patch(run.body["metadata"])
        try:
            body = await self._deps.cluster.patch_metadata(run.body, patch)
        except Conflict:  # with the concurrent changes of another client
            return await self._read(run.ref, run.causes)
        return self._decided(run.ref, body, run.causes)

    # Run -----------------------------------------------------------------------------

    async def _run(self, run: ResourceRun) -> ReconcileResult:
        run.state.is_unapplied = True
        run.overrides = read_overrides(run.body, as_job=self._watch.job is not None)
        try:
            for observer in run.acting():
                await observer.begin(run)
        except RunError as error:
            run.message = f"Unable to run reconciliation: {error}"
            _log.error("Reconciliation failed", error=run.message)
            await self._reporter.failed(run)
            return Failed(message=run.message)
        if run.overrides.error:
            return await self._refuse(run, run.overrides.error)
        await self._report_start(run)
        play = self._deps.fences.of(run.ref).guard(partial(self._plays.run, run))
        # None for a play that was cancelled, though it may have had an outcome.
        run.outcome = await self._superseding.run(run, play)
        if run.outcome is None:
            run.state.succeeded = None
            return Superseded()
        return await self._report(run, run.outcome)

    async def _report_start(self, run: ResourceRun) -> None:
        """Report the start of a run that may change something."""
        before = read_conditions(run.body)
        # Conditions that change with each attempt of a failing run would flap.
        is_retry = all(cause.trigger is Trigger.RETRY for cause in run.causes)
        is_known = is_retry and is_failed(before, run.generation)
        if run.is_announced or not (is_known or self._is_steady(run, before)):
            run.body = _existing(await self._reporter.start(run))
        elif is_suspended(before):
            run.body = _existing(await self._reporter.write(run, Phase.RESUMED))

    def _is_steady(self, run: ResourceRun, conditions: Sequence[Json]) -> bool:
        """Return whether the run is expected to change nothing, so its start is not reported."""
        body, succeeded = run.body, run.state.succeeded
        if is_deselected(conditions) or selection.is_deselected(body, self._watch):
            return False
        if body["metadata"].get("deletionTimestamp"):
            # A deletion is a new generation, so the last run of it was a clean-up.
            return is_waiting(conditions) and succeeded == run.generation
        if not (is_successful(conditions) or is_waiting(conditions)):
            return False
        if not run.generation and any(cause.trigger is Trigger.SPEC for cause in run.causes):
            return False
        if succeeded is not None:
            return succeeded == run.generation
        return all(cause.trigger is Trigger.START for cause in run.causes)

    # Report --------------------------------------------------------------------------

    async def _report(self, run: ResourceRun, outcome: RunOutcome) -> ReconcileResult:
        run.started_at, run.ended_at = outcome.started or run.started_at, outcome.finished
        is_done = outcome.successful and outcome.requeue_after is None
        if is_done and run.is_deletion:
            return await self._remove_finalizer(run)
        for observer in run.acting():
            observer.reporting(run)
        if is_done and run.is_deselection:
            return await self._deselected(run)
        if not outcome.successful:
            run.state.succeeded = None
            _existing(await self._reporter.failure(run, self._current(run)))
            text = failure_line(outcome.failures, _REQUEST_MESSAGE_BYTES)
            return Failed(outcome.timed_out, outcome.load_failed, text)
        current = self._current(run)
        if (catching_up := self._deps.dependents.catching_up(run.ref)) is not None:
            self._deps.queue.free_slot(run.ref)
            await catching_up
        run.reported = _existing(await self._reporter.success(run, current))
        run.state.succeeded = run.generation
        if outcome.requeue_after is not None:
            return Succeeded(outcome.requeue_after, Trigger.REQUEUE)
        run.state.is_unapplied = False
        after, by_resource = self._next_period(run.overrides.period)
        if outcome.retry_after is not None:
            after = outcome.retry_after if after is None else min(after, outcome.retry_after)
        return Succeeded(after, Trigger.PERIOD, by_resource)

    async def _refuse(self, run: ResourceRun, message: str) -> Failed:
        """Report a resource that cannot be run until it is corrected."""
        run.state.is_unapplied = True
        run.message = message
        _log.error("Reconciliation failed", error=message)
        await self._reporter.failed(run, Phase.STALLED)
        return Failed(message=message)

    async def _ended(self, run: ResourceRun, result: ReconcileResult) -> ReconcileResult:
        for observer in run.acting():
            await observer.ended(run, result)
        return result

    def _current(self, run: ResourceRun) -> Json | None:
        """Return the resource if no event showed a newer version of it, else None.

        Also compared with the writes of the run, whose events may arrive later: if nothing is
        patched, no conflict of resourceVersions would show that it is stale.
        """
        version = run.body["metadata"]["resourceVersion"]
        latest = self._deps.latest_version(run.ref)
        written = self._deps.dependents.writes.own_version(run.ref)
        if not latest or any(may_be_older(version, each) for each in (latest, written) if each):
            return None
        return run.body

    def _next_period(self, period: timedelta | None) -> tuple[timedelta | None, bool]:
        """Return the time until the next run, and whether `period` of the resource shortens it."""
        if period is None:
            return self._period, False
        own = clamp_period(period)
        return own or None, bool(own) and (self._period is None or own < self._period)

    async def _remove_finalizer(self, run: ResourceRun) -> NoRun:
        """Remove our finalizer from a resource that was cleaned up."""
        assert self._watch.finalizer is not None
        name = self._watch.finalizer.name
        change = partial(without_finalizer, name=name)
        if await change_metadata(self._deps.cluster, run.ref, run.uid, change):
            _log.info("Finalized", finalizer=name, seconds=run.seconds)
        return NoRun()

    async def _deselected(self, run: ResourceRun) -> Succeeded:
        """Report a deselection that succeeded, and remove the annotation from its resource.

        In this order: a process that ends in between runs the deselection again.
        """
        assert self._watch.deselection is not None
        run.state.succeeded, run.state.superseded = None, 0
        _existing(await self._reporter.deselected(run, self._current(run)))
        change = partial(without_annotation, name=self._watch.deselection.annotation)
        await change_metadata(self._deps.cluster, run.ref, run.uid, change)
        return Succeeded(None, Trigger.PERIOD)

    async def report_failure(self, ref: ObjectRef, causes: Sequence[Cause], message: str) -> None:
        """Report an aborted reconcile in the status and as an Event. Raises ApiError."""
        body = await self._deps.cluster.get(ref)
        if body is None:
            return
        state = self._states.of(ref)
        # The resource may have been edited since, and this failure is not about that.
        generation = state.generation or generation_of(body)
        failed = body | {"metadata": body["metadata"] | {"generation": generation}}
        run = ResourceRun(
            ref,
            failed,
            causes,
            self._watch,
            state,
            Run(cleanup=False),
            observers=self._observers,
        )
        run.message = message
        for observer in run.acting():
            if await observer.takes_failure(run):
                return
        state.is_unapplied = True
        await self._reporter.failed(run)
        await self._ended(run, Failed(message=message))

    async def report_loop(self, ref: ObjectRef, echoes: Sequence[Cause]) -> None:
        """Emit an Event about a resource that triggers itself, by these causes. Raises ApiError."""
        await self._reporter.loop(ref, echoes)

    async def _forget(self, ref: ObjectRef) -> None:
        """Remove the state and the files of a deleted resource."""
        self._states.pop(ref)
        self._deps.records.forget(ref)
        await self._deps.executor.forget(ref)


def _deselecting(watch: Watch) -> Watch:
    """Return the watch with the content and the vars of its deselection as its own."""
    assert watch.deselection is not None
    content = watch.deselection.content or watch.content
    return replace(watch, content=content, vars={**watch.vars, **watch.deselection.vars})


class _ResourceDeleted(Exception):
    """The resource was deleted during its reconcile; a new one may have its name."""


def _existing(body: Json | None) -> Json:
    if body is None:
        raise _ResourceDeleted
    return body
