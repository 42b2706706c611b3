"""The status of the nginx operator, as its watches.yaml declares it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from operator_runner.config.watches import expressions, load
from operator_runner.core.model import Json, Watch
from operator_runner.reconcile.declared_status import EvaluatedStatus, evaluate

REPOSITORY = Path(__file__).parents[2]
COUNTS = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
SERVICE = {
    "kind": "Service",
    "spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
}
WAITING = {"reason": "ImagePullBackOff", "message": "Pod a cannot start"}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Give the watch of this repository."""
    monkeypatch.chdir(REPOSITORY)
    (found,) = load(REPOSITORY / "watches.yaml", {}).watches
    return found


def deployment(size: int = 2, **status: Any) -> Json:
    return {
        "kind": "Deployment",
        "metadata": {"generation": 3},
        "spec": {"replicas": size},
        "status": {"observedGeneration": 3, **status},
    }


def shown(watch: Watch, *dependents: Json, **status: Any) -> EvaluatedStatus:
    assert watch.status is not None
    resource = {"spec": {}, "status": status}
    found = evaluate(watch.status, {"resource": resource, "dependents": list(dependents)})
    assert found.problems == []
    return found


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (deployment(**COUNTS), "True"),
        (deployment(size=0), "True"),
        (deployment(), "False"),
        (deployment(**COUNTS | {"availableReplicas": 1}), "False"),
        (deployment(**COUNTS | {"updatedReplicas": 1}), "False"),
        (deployment(**COUNTS | {"replicas": 3}), "False"),
        (deployment(**COUNTS | {"observedGeneration": 2}), "False"),
        (SERVICE, "False"),
    ],
)
def test_available_follows_the_deployment(watch: Watch, found: Json, status: str) -> None:
    """The requested number of Pods of the newest template serves, and no other one is left."""
    (condition,) = shown(watch, found, waiting=WAITING).conditions
    reason = "PodsServe" if status == "True" else "ImagePullBackOff"
    assert (condition["status"], condition["reason"]) == (status, reason)


def test_the_reason_is_that_of_the_role(watch: Watch) -> None:
    """An error of the role comes first, then the reason of a waiting Pod."""
    (condition,) = shown(watch, deployment()).conditions
    assert (condition["reason"], condition["message"]) == (
        "PodsStart",
        "not all requested Pods are ready yet",
    )
    degraded = {"type": "OperatorDegraded", "status": "True", "reason": "Bad", "message": "why"}
    (condition,) = shown(watch, conditions=[degraded], waiting=WAITING).conditions
    assert (condition["reason"], condition["message"]) == ("Bad", "why")
    fine = degraded | {"status": "False"}
    (condition,) = shown(watch, conditions=[fine], waiting=WAITING).conditions
    assert (condition["reason"], condition["message"]) == tuple(WAITING.values())


def test_replicas_and_ports_are_those_of_the_objects(watch: Watch) -> None:
    """They include defaults of the API."""
    assert shown(watch, deployment(), SERVICE).fields == {"replicas": 2, "ports": "80/TCP,53/UDP"}


def test_pods_start_a_run_when_they_cannot_start(watch: Watch) -> None:
    """A container that waits for more than its creation, or a Pod that no node accepts."""
    (trigger,) = watch.triggers
    assert trigger.when is not None
    waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    stuck = copy.deepcopy(waiting)
    stuck["state"]["waiting"]["reason"] = "ErrImagePull"
    homeless = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
    for status, expected in (
        ({}, False),
        ({"containerStatuses": [waiting]}, False),
        ({"containerStatuses": [{"state": {"running": {}}}]}, False),
        ({"containerStatuses": [waiting, stuck]}, True),
        (homeless, True),
    ):
        value = expressions.evaluate(trigger.when, {"status": status})
        assert expressions.is_true(value) is expected, status
