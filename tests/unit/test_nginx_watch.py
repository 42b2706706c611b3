"""The status of the nginx operator, as its watches.yaml declares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operator_runner.config.watches import load
from operator_runner.core.model import RunOutcome, Stats, TaskFailure, Watch
from operator_runner.reconcile.declared_status import EvaluatedStatus, evaluate, result_of

REPOSITORY = Path(__file__).parents[2]
OBJECTS = [
    {"kind": "Deployment", "spec": {"replicas": 2}},
    {
        "kind": "Service",
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
    },
]
NOT_READY = {"ready": False, "reason": "ImagePullFailed", "message": "Deployment web is not ready"}
FAILED = RunOutcome(None, (TaskFailure("Write", "why", "r:1", "OperandDeploymentFailed"),))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Give the watch of this repository."""
    monkeypatch.chdir(REPOSITORY)
    (found,) = load(REPOSITORY / "watches.yaml", {}).watches
    return found


def shown(watch: Watch, outcome: RunOutcome) -> EvaluatedStatus:
    assert watch.status is not None
    resource = {"metadata": {"name": "web"}}
    values: dict[str, Any] = {"resource": resource, "dependents": OBJECTS, "readiness": NOT_READY}
    found = evaluate(watch.status, values | {"result": result_of(outcome)})
    assert found.problems == []
    return found


def test_replicas_and_ports_are_those_of_the_objects(watch: Watch) -> None:
    """They include defaults of the API."""
    found = shown(watch, RunOutcome(Stats()))
    selector = "app.kubernetes.io/name=nginx,app.kubernetes.io/instance=web"
    assert found.fields == {
        "lastGoodImage": None,
        "replicas": 2,
        "ports": "80/TCP,53/UDP",
        "selector": selector,
    }


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "message"),
    [
        (
            RunOutcome(Stats()),
            "False",
            "OperatorSucceeded",
            "operator successfully reconciling",
        ),
        (FAILED, "True", "OperandDeploymentFailed", "why (task 'Write' at r:1)"),
    ],
)
def test_conditions_are_those_of_the_objects_and_of_the_run(
    watch: Watch, outcome: RunOutcome, status: str, reason: str, message: str
) -> None:
    """Available is the readiness of the objects, OperatorDegraded the result of the run."""
    available, degraded = shown(watch, outcome).conditions
    assert available == {"type": "Available", "status": "False"} | {
        name: NOT_READY[name] for name in ("reason", "message")
    }
    expected = {"type": "OperatorDegraded", "status": status, "reason": reason}
    assert degraded == expected | {"message": message}
