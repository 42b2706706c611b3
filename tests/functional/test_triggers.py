"""Objects that a resource neither made nor names lead to runs, through a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.test_operator import echo, wait_for_runs
from tests.functional.test_past_runs import why
from tests.functional.test_requeue import conditions
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

_TRIGGERS = """
  triggers:
    - version: v1
      kind: Namespace
      selector: {{matchLabels: {{reports: {namespace}}}}}
      when: metadata.annotations.team
      name: metadata.annotations.report
    - version: v1
      kind: Secret
      matching: spec.choose
    - version: v1
      kind: ConfigMap
      when: data.ready == 'yes'
      name: data.for
    - version: v1
      kind: ServiceAccount
      when: metadata.annotations
      name: metadata.annotations.report || metadata.annotations
"""


@pytest.fixture
def triggers(kubectl: Kubectl, operator: Operator, project: Path) -> Operator:
    """Return the operator, not started yet; its kind has a trigger of each sort."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write(_TRIGGERS.format(namespace=kubectl.namespace))
    return operator


@pytest.fixture
def team(kubectl: Kubectl) -> Iterator[Json]:
    """Return a Namespace to create; it is removed after the test."""
    name = f"{kubectl.namespace}-team"
    labels, annotations = {"reports": kubectl.namespace}, {"team": "a", "report": "a"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def body(kind: str, name: str, *, labels: Json | None = None, **fields: Json) -> Json:
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


class Causes:
    """The causes of runs in the log, read in turn."""

    def __init__(self, operator: Operator, runs: int) -> None:
        """Begin after so many runs."""
        wait_for_runs(operator, runs)
        self._operator, self._read = operator, runs

    def next(self, count: int = 1) -> dict[str, str]:
        """Wait for further runs; return the cause by the name of the resource."""
        wait_for_runs(self._operator, self._read + count)
        lines = eventually(
            lambda: self._operator.lines("Reconciling")[self._read :],
            lambda found: len(found) >= count,
            details=self._operator.log,
        )
        self._read += count
        return {line["name"]: line["cause"] for line in lines}


def test_objects_lead_to_runs(
    kubectl: Kubectl, triggers: Operator, team: Json, control_plane: Path
) -> None:
    """By name, by labels and by `when`; created, changed, deleted; `why` shows the object."""
    kubectl.apply(echo("a", choose={"matchLabels": {"app": "a"}}), echo("b"))
    kubectl.apply(body("ConfigMap", "old", data={"ready": "yes", "for": "b"}))
    triggers.start()
    causes = Causes(triggers, 2)
    name, space = team["metadata"]["name"], kubectl.namespace

    kubectl.apply(team)
    assert causes.next() == {"a": f"trigger: Namespace {name} created"}
    ours = ("-n", space, f"--kubeconfig={control_plane}")
    output = why("echo/a", *ours, f"--work-dir={triggers.scratch / 'work'}")
    assert f"trigger: Namespace {name} created" in output
    kubectl("annotate", "namespace", name, "report=b", "--overwrite")
    assert sorted(causes.next(2)) == ["a", "b"]
    kubectl("label", "namespace", name, "reports-")
    assert causes.next() == {"b": f"trigger: Namespace {name} deleted or no longer selected"}

    kubectl.apply(body("Secret", "words", labels={"app": "other"}))
    kubectl("label", "secret", "words", "app=a", "--overwrite")
    assert f"trigger: Secret {space}/words changed" in causes.next()["a"]
    kubectl("delete", "secret", "words")
    assert causes.next() == {"a": f"trigger: Secret {space}/words deleted"}

    kubectl.apply(body("ConfigMap", "new", data={"ready": "no", "for": "b"}))
    kubectl.merge("configmap", "new", {"data": {"ready": "yes"}})
    assert causes.next() == {"b": f"trigger: ConfigMap {space}/new now matches"}
    kubectl.merge("configmap", "new", {"data": {"for": "missing"}})
    assert f"trigger: ConfigMap {space}/new changed" in causes.next()["b"]
    kubectl("delete", "configmap", "old")
    assert causes.next() == {"b": f"trigger: ConfigMap {space}/old deleted"}
    metric = "operator_runner_trigger_events_total"
    counts = {kind: triggers.metric(metric, object_kind=kind) for kind in ("Namespace", "Secret")}
    assert counts == {"Namespace": 3, "Secret": 2}


def test_a_wrong_expression_is_reported(kubectl: Kubectl, triggers: Operator) -> None:
    """In the log, a metric and an Event about the object, once; other triggers go on."""
    kubectl.apply(echo("a"))
    triggers.start()
    causes = Causes(triggers, 1)
    account = body("ServiceAccount", "wrong")
    account["metadata"]["annotations"] = {"team": "a"}
    kubectl.apply(account)

    def events() -> list[Json]:
        found = kubectl.list("events.v1.events.k8s.io")
        return [each for each in found if each["reason"] == "InvalidExpression"]

    (event,) = eventually(events, details=triggers.log)
    assert event["regarding"]["kind"] == "ServiceAccount"
    assert event["note"] == (
        f"triggers[3].name of watches.yaml fails for ServiceAccount {kubectl.namespace}/wrong:"
        " metadata.annotations.report || metadata.annotations: expected text or a list of text,"
        " got a map; correct the expression or the object"
    )
    kubectl.apply(body("ConfigMap", "new", data={"ready": "yes", "for": "a"}))
    causes.next()
    (line,) = triggers.lines("Cannot evaluate an expression of watches.yaml")
    assert line["key"] == "triggers[3].name"
    assert line["expression"] == "metadata.annotations.report || metadata.annotations"
    failures = triggers.metric("operator_runner_expression_failures_total", key="triggers[3].name")
    assert failures == 1


def test_a_wrong_expression_is_a_condition_of_the_resource(
    kubectl: Kubectl, triggers: Operator
) -> None:
    """Of the one that the object was about, until the object is corrected or deleted."""
    kubectl.apply(echo("a"))
    triggers.start()
    causes = Causes(triggers, 1)
    account = body("ServiceAccount", "team")
    account["metadata"]["annotations"] = {"report": "a"}
    kubectl.apply(account)
    causes.next()

    def failing() -> bool:
        return "ExpressionFailure" in conditions(kubectl)

    for hint in (["annotate", "serviceaccount", "team", "report=a"], ["delete", "sa", "team"]):
        kubectl("annotate", "serviceaccount", "team", "report-", "team=a", "--overwrite")
        eventually(failing, details=triggers.log)
        failure = conditions(kubectl)["ExpressionFailure"]
        assert (failure["status"], failure["reason"]) == ("True", "InvalidExpression")
        assert failure["message"] == (
            f"triggers[3].name of watches.yaml fails for ServiceAccount {kubectl.namespace}/team:"
            " metadata.annotations.report || metadata.annotations:"
            " expected text or a list of text, got a map"
        )
        kubectl(*hint)
        eventually(failing, lambda found: not found, details=triggers.log)
    causes_of_runs = [line["cause"] for line in triggers.lines("Reconciling")]
    assert "triggers[3].name no longer fails" in causes_of_runs[-1]


def test_changes_while_the_operator_is_down(kubectl: Kubectl, triggers: Operator) -> None:
    """The run at start has seen them; objects that exist then lead to no further run."""
    kubectl.apply(echo("a"))
    kubectl.apply(*(body("ConfigMap", name, data={"ready": "yes", "for": "a"}) for name in "xy"))
    triggers.start()
    wait_for_runs(triggers, 1)
    triggers.terminate()
    kubectl("delete", "configmap", "x")
    triggers.start()
    wait_for_runs(triggers, 1)
    kubectl.merge("configmap", "y", {"data": {"more": "1"}})
    wait_for_runs(triggers, 2)
    first, second, third = (line["cause"] for line in triggers.lines("Reconciling"))
    assert [first, second] == ["start", "start"]
    assert third.startswith(f"trigger: ConfigMap {kubectl.namespace}/y changed")
