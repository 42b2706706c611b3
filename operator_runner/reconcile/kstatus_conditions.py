"""The conditions Ready, Reconciling and Stalled, of watches with `kstatus`.

`kubectl wait --for=condition=Ready`, Flux, Argo CD and others read them. Reconciling and Stalled
are present only while they are true; each condition has an observedGeneration.

Source: kstatus (sigs.k8s.io/cli-utils, pkg/kstatus) and the Kubernetes API conventions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from operator_runner.core.model import Json, Watch
from operator_runner.kube.object_readiness import DependentsReadiness
from operator_runner.reconcile.conditions import conditions_by_type, new_condition, put_condition
from operator_runner.reconcile.observer import Observer, Phase, ResourceRun
from operator_runner.reconcile.protocols import ObservedDependents

_ABNORMAL = ("Reconciling", "Stalled")


def progressing(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource whose run begins; Ready is kept if it is current."""
    text = "Running reconciliation"
    is_current = any(
        condition.get("type") == "Ready" and condition.get("observedGeneration") == generation
        for condition in conditions
    )
    result = _without(conditions, "Stalled")
    if not is_current:
        ready = new_condition("Ready", "Unknown", "Progressing", text, generation)
        result = put_condition(result, ready, now)
    reconciling = new_condition("Reconciling", "True", "Progressing", text, generation)
    return put_condition(result, reconciling, now)


def applied(
    conditions: Sequence[Json],
    generation: int,
    now: datetime,
    readiness: DependentsReadiness,
    ready_when: Sequence[str] = (),
) -> list[Json]:
    """Return the conditions of a resource whose run succeeded.

    It is ready if its objects are, and the conditions `ready_when` are True; else it has the
    reason of the first that is not.
    """
    present = conditions_by_type({"status": {"conditions": [*conditions]}})
    unmet = (each for each in ready_when if present.get(each, {}).get("status") != "True")
    if readiness.ready is False:
        failed, reason, message = readiness.failed, readiness.reason, readiness.message
    elif (type_ := next(unmet, None)) is not None:
        found = present.get(type_, {})
        failed, reason = False, str(found.get("reason") or f"Not{type_}")
        message = str(found.get("message") or f"condition {type_} is not True")
    else:
        text = "Last reconciliation succeeded"
        condition = new_condition("Ready", "True", "Succeeded", text, generation)
        return put_condition(_without(conditions, *_ABNORMAL), condition, now)
    present_type, absent_type = ("Stalled", "Reconciling") if failed else _ABNORMAL
    condition = new_condition("Ready", "False", reason, message, generation)
    result = put_condition(_without(conditions, absent_type), condition, now)
    abnormal = new_condition(present_type, "True", reason, message, generation)
    return put_condition(result, abnormal, now)


def deselected(conditions: Sequence[Json]) -> list[Json]:
    """Return the conditions of a resource that is no longer reconciled: none of these."""
    return _without(conditions, "Ready", *_ABNORMAL)


def suspended(conditions: Sequence[Json]) -> list[Json]:
    """Return the conditions of a resource that is suspended: it is not reconciling."""
    return _without(conditions, "Reconciling")


def waiting(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource whose run succeeded and requested another run."""
    message = _message(conditions, "Running")
    condition = new_condition("Ready", "Unknown", "Progressing", message, generation)
    result = put_condition(_without(conditions, "Stalled"), condition, now)
    reconciling = new_condition("Reconciling", "True", "Progressing", message, generation)
    return put_condition(result, reconciling, now)


def failing(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource whose run failed and that is tried again."""
    message = _message(conditions, "Failure")
    condition = new_condition("Ready", "False", "Failed", message, generation)
    result = put_condition(_without(conditions, "Stalled"), condition, now)
    retrying = new_condition("Reconciling", "True", "ProgressingWithRetry", message, generation)
    return put_condition(result, retrying, now)


def stalled(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource that cannot run until it is corrected."""
    message = _message(conditions, "Failure")
    condition = new_condition("Ready", "False", "Stalled", message, generation)
    result = put_condition(_without(conditions, "Reconciling"), condition, now)
    return put_condition(
        result, new_condition("Stalled", "True", "Failed", message, generation), now
    )


class KstatusObserver(Observer):
    """Adds these conditions; Ready depends on all others, and on the objects of the resource."""

    def __init__(self, watch: Watch, dependents: ObservedDependents) -> None:
        """See `Dependencies`."""
        self._ready_when = watch.ready_when
        self._dependents = dependents

    def summarize(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """See `Observer`."""
        generation, now, outcome = run.generation, run.now, run.outcome
        if phase is Phase.FINISHED and outcome is not None:
            if not outcome.successful:
                return failing(conditions, generation, now)
            if outcome.requeue_after is not None:
                return waiting(conditions, generation, now)
            readiness = self._dependents.readiness(run.ref)
            return applied(conditions, generation, now, readiness, self._ready_when)
        change = _BY_PHASE.get(phase)
        return conditions if change is None else change(conditions, generation, now)


_BY_PHASE: Mapping[Phase, Callable[[Sequence[Json], int, datetime], list[Json]]] = {
    Phase.STARTED: progressing,
    Phase.SUSPENDED: lambda conditions, *_: suspended(conditions),
    Phase.DESELECTED: lambda conditions, *_: deselected(conditions),
    Phase.FAILED: failing,
    Phase.STALLED: stalled,
}


def _message(conditions: Sequence[Json], type_: str) -> str:
    """Return the message of a condition that `conditions` has just set."""
    found = (each.get("message") for each in conditions if each.get("type") == type_)
    return str(next(found, "") or "")


def _without(conditions: Sequence[Json], *types: str) -> list[Json]:
    return [condition for condition in conditions if condition.get("type") not in types]
