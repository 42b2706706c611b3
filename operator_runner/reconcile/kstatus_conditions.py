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
    abnormal = ("Stalled" if failed else "Reconciling", reason, message)
    return _abnormal(conditions, ("False", reason), abnormal, generation, now)


def deselected(conditions: Sequence[Json]) -> list[Json]:
    """Return the conditions of a resource that is no longer reconciled: none of these."""
    return _without(conditions, "Ready", *_ABNORMAL)


def suspended(conditions: Sequence[Json]) -> list[Json]:
    """Return the conditions of a resource that is suspended: it is not reconciling."""
    return _without(conditions, "Reconciling")


def waiting(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource whose run succeeded and requested another run."""
    abnormal = ("Reconciling", "Progressing", _message(conditions, "Running"))
    return _abnormal(conditions, ("Unknown", "Progressing"), abnormal, generation, now)


def failing(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource whose run failed and that is tried again."""
    abnormal = ("Reconciling", "ProgressingWithRetry", _message(conditions, "Failure"))
    return _abnormal(conditions, ("False", "Failed"), abnormal, generation, now)


def stalled(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource that cannot run until it is corrected."""
    abnormal = ("Stalled", "Failed", _message(conditions, "Failure"))
    return _abnormal(conditions, ("False", "Stalled"), abnormal, generation, now)


def _abnormal(
    conditions: Sequence[Json],
    ready: tuple[str, str],
    abnormal: tuple[str, str, str],
    generation: int,
    now: datetime,
) -> list[Json]:
    """Return the conditions with one of _ABNORMAL: type, reason and message.

    `ready` are status and reason of Ready, which has the same message.
    """
    type_, reason, message = abnormal
    others = (each for each in _ABNORMAL if each != type_)
    condition = new_condition("Ready", *ready, message, generation)
    result = put_condition(_without(conditions, *others), condition, now)
    return put_condition(result, new_condition(type_, "True", reason, message, generation), now)


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
