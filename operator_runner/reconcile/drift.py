"""Handle drift: objects that differ from what an unchanged resource asks for.

The condition Drifted shows the policies `warn` and `ignore`, and its observedGeneration is the
generation that was last reconciled; as with Flux, a changed resource is reconciled in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog

from operator_runner.core.model import Drift, Json, Trigger, Watch, generation_of
from operator_runner.core.object_diff import ObjectDifference, summarize
from operator_runner.core.resource_states import ResourceState, ResourceStates
from operator_runner.core.texts import truncated
from operator_runner.reconcile.annotations import (
    DRIFT_ANNOTATION,
    annotations_of,
    pending_request,
)
from operator_runner.reconcile.conditions import (
    is_waiting,
    new_condition,
    put_condition,
    read_conditions,
)
from operator_runner.reconcile.decide import ON_REQUEST, Run
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import Observer, Phase, ResourceRun
from operator_runner.reconcile.preview import Preview
from operator_runner.reconcile.results import Failed, NoRun, ReconcileResult, Succeeded
from operator_runner.reconcile.status import StatusWriter
from operator_runner.telemetry.runs.api import DriftEntry

_log = structlog.get_logger(__name__)
DRIFTED = "Drifted"
_RECONCILED, _DIFFERS, _UNKNOWN = "Reconciled", "ObjectsDiffer", "PreviewFailed"
_REASONS = (_RECONCILED, _DIFFERS, _UNKNOWN)
_MESSAGES = {
    Drift.WARN: "The last reconciliation wrote all objects; drift is reported",
    Drift.IGNORE: "The last reconciliation wrote all objects; drift is ignored",
}
_SHOWN = 5
_MESSAGE_BYTES = 900


@dataclass(slots=True)
class _DriftSlot:
    """What the last preview of a resource has found."""

    entry: DriftEntry | None = None


class DriftObserver(Observer):
    """Reports or ignores drift in place of a run that would only correct it."""

    def __init__(
        self,
        watch: Watch,
        dependencies: Dependencies,
        status: StatusWriter,
        is_tick_due: Callable[[ResourceRun], bool],
        period: timedelta | None,
    ) -> None:
        """`period` is the time until the next preview, None for none."""
        self._watch = watch
        self._deps = dependencies
        self._status = status
        self._is_tick_due = is_tick_due
        self._period = period
        if watch.drift is Drift.ENFORCE:
            self.marks = {DRIFT_ANNOTATION, DRIFTED, _DriftSlot}

    async def hold(self, run: ResourceRun) -> ReconcileResult | None:
        """See `Observer`."""
        if run.action != Run(cleanup=False) or (policy := self._policy(run)) is None:
            return None
        if policy is Drift.IGNORE or self._deps.preview is None:
            _forget(run.state)
            generation = run.generation
            await self._write(
                run, lambda old, now: after_run(old, Drift.IGNORE, generation, now, applied=True)
            )
            return NoRun("Drift is ignored")
        await self._report(run, await self._deps.preview(run.body, self._watch))
        return Succeeded(self._period, Trigger.PERIOD)

    async def takes_failure(self, run: ResourceRun) -> bool:
        """See `Observer`."""
        policy = self._policy(run)
        if policy is Drift.WARN:
            # The next run writes nothing either, so it could not end a failure.
            await self._report(run, Preview(run.ref, failure=run.message))
        return policy is not None

    async def ended(self, run: ResourceRun, result: ReconcileResult) -> None:
        """See `Observer`: after a failure it is unknown what differs."""
        if isinstance(result, Failed) or (isinstance(result, NoRun) and result.failed):
            _forget(run.state)

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`: what is corrected is new if it differs again."""
        _forget(run.state)
        run.is_announced |= is_recorded(read_conditions(run.body))

    def conditions(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """See `Observer`. An operator that ends during a run has to repeat it."""
        if phase in (Phase.STARTED, Phase.FAILED, Phase.STALLED):
            return without_record(conditions)
        if phase is not Phase.FINISHED or run.outcome is None:
            return conditions
        outcome = run.outcome
        is_repeated = outcome.requeue_after is not None or outcome.retry_after is not None
        applied = outcome.successful and not is_repeated
        policy = policy_of(run.body, self._watch)
        return after_run(conditions, policy, run.generation, run.now, applied=applied)

    def _policy(self, run: ResourceRun) -> Drift | None:
        """Return the policy if a run would only correct drift, and is not to; else None."""
        policy = policy_of(run.body, self._watch)
        if policy is Drift.ENFORCE or run.state.is_unapplied or ON_REQUEST in run.causes:
            return None
        is_drift = not self._is_tick_due(run) and is_drift_run(run.body, run.state.succeeded)
        return policy if is_drift else None

    async def _report(self, run: ResourceRun, preview: Preview) -> None:
        """Report what a run that writes nothing has found; an Event only if that is new."""
        condition = condition_of(preview, run.generation)
        found = run.state.slot(_DriftSlot)
        before = found.entry or DriftEntry(run.ref)
        if preview.failure:
            _log.warning("Cannot preview the resource", error=preview.failure)
            # The drift that was found before has not ended.
            entry = replace(before, failure=condition["message"])
        else:
            entry = DriftEntry(run.ref, drift_text(preview.differences))
        is_changed = entry.text != before.text
        if is_changed:
            _log.info("Drift changed", drift=entry.text or "none")
        found.entry = entry if entry.message else None
        run.state.is_drifted = bool(entry.text)
        await self._write(run, lambda old, now: put_condition(list(old), condition, now))
        if is_changed and entry.text:
            event = run.event(DRIFTED, entry.text, warning=True)
            await self._deps.cluster.emit(run.body, event)

    async def _write(
        self, run: ResourceRun, change: Callable[[Sequence[Json], datetime], list[Json]]
    ) -> None:
        if self._watch.manage_status:
            now = datetime.now(UTC)
            await self._status.write(run.ref, run.uid, lambda old: change(old, now), run.body)


def _forget(state: ResourceState) -> None:
    state.drop(_DriftSlot)
    state.is_drifted = False


def drift_entries(states: ResourceStates) -> Sequence[DriftEntry]:
    """Return the drift of resources since their last run that wrote."""
    return tuple(slot.entry for _, slot in states.slots(_DriftSlot) if slot.entry is not None)


def policy_of(body: Json, watch: Watch) -> Drift:
    """Return the policy of a resource: that of its annotation, if it has one, else the watch's.

    With an invalid policy the resource is run, and the run fails with the reason, see
    `read_overrides`.
    """
    try:
        policy = Drift(annotations_of(body).get(DRIFT_ANNOTATION, watch.drift.value))
    except ValueError:
        return Drift.ENFORCE
    # A preview of a Job would run inside the operator, without the image and limits of Jobs.
    return Drift.ENFORCE if policy is Drift.WARN and watch.job is not None else policy


def is_drift_run(body: Json, succeeded: int | None) -> bool:
    """Return whether a run without a change would only correct drift.

    `succeeded` is the generation that this process has reconciled, or None.
    """
    conditions = read_conditions(body)
    if is_waiting(conditions) or pending_request(annotations_of(body)):
        return False
    # A list: another client may have written values of any type.
    generations = [each.get("observedGeneration") for each in conditions if _is_ours(each)]
    return generation_of(body) in [*generations, succeeded]


def is_recorded(conditions: Iterable[Json]) -> bool:
    """Return whether the conditions record the generation that was reconciled."""
    return any(map(_is_ours, conditions))


def without_record(conditions: Iterable[Json]) -> list[Json]:
    """Return the conditions without that record: what was written may be incomplete."""
    return [each for each in conditions if not _is_ours(each)]


def after_run(
    conditions: Sequence[Json], policy: Drift, generation: int, now: datetime, *, applied: bool
) -> list[Json]:
    """Return the conditions after a run that wrote; `applied` is whether it has converged.

    With `ignore` also those after a run that was left out.
    """
    if policy is Drift.ENFORCE or not applied:
        return without_record(conditions)
    new = new_condition(DRIFTED, "False", _RECONCILED, _MESSAGES[policy], generation)
    return put_condition(list(conditions), new, now)


def condition_of(preview: Preview, generation: int) -> Json:
    """Return the condition Drifted after a run that wrote nothing, without times."""
    if preview.failure:
        text = truncated(f"The dry run failed: {preview.failure}", _MESSAGE_BYTES)
        return new_condition(DRIFTED, "Unknown", _UNKNOWN, text, generation)
    if text := drift_text(preview.differences):
        return new_condition(DRIFTED, "True", _DIFFERS, text, generation)
    return new_condition(DRIFTED, "False", _RECONCILED, "No object differs", generation)


def drift_text(differences: Sequence[ObjectDifference]) -> str:
    """Return `Deployment default/web changed: spec.replicas; ...`: what a run would do.

    Empty if nothing differs.
    """
    if not differences:
        return ""
    shown = [_text(each) for each in differences[:_SHOWN]]
    more = len(differences) - _SHOWN
    parts = [*shown, f"and {more} more"] if more > 0 else shown
    return truncated(f"A run would write: {'; '.join(parts)}", _MESSAGE_BYTES)


def is_drifted(conditions: Iterable[Json]) -> bool:
    """Return whether the conditions show drift."""
    return any(_is_ours(each) and each.get("status") == "True" for each in conditions)


def message(conditions: Iterable[Json]) -> str:
    """Return what a run would write, or why that is unknown; an empty text without drift."""
    shown = (each for each in conditions if _is_ours(each) and each.get("status") != "False")
    return str(next(shown, {}).get("message") or "")


def _text(difference: ObjectDifference) -> str:
    paths = summarize(difference.paths)
    return f"{difference}: {paths}" if paths else str(difference)


def _is_ours(condition: Json) -> bool:
    return condition.get("type") == DRIFTED and condition.get("reason") in _REASONS
