"""Objects that a resource names or selects but did not make wake it, through a real API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.functional.test_operator import KIND, echo, wait_for_runs
from tests.functional.test_requeue import conditions
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

_REFERENCES = """
  references:
    - version: v1
      kind: ConfigMap
      name: spec.sayThis
"""


def _at_least(count: int) -> Callable[[list[str]], bool]:
    return lambda found: len(found) >= count


def test_referenced_objects_start_a_run(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Its ConfigMap, created, edited and deleted by others; another ConfigMap does not."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write(_REFERENCES)
    kubectl.apply(echo("a", sayThis="words"))
    operator.start()
    wait_for_runs(operator, 1)

    def causes() -> list[str]:
        return [line["cause"] for line in operator.lines("Reconciling")][1:]

    kubectl("create", "configmap", "others", "--from-literal=a=1")
    for number, (done, arguments) in enumerate(
        (
            ("created", ["create", "configmap", "words", "--from-literal=a=1"]),
            ("changed", ["patch", "configmap", "words", "--patch", '{"data": {"a": "2"}}']),
            ("deleted", ["delete", "configmap", "words"]),
        ),
        start=1,
    ):
        kubectl(*arguments)
        eventually(causes, _at_least(number), details=operator.log)
        assert f"ConfigMap {kubectl.namespace}/words {done}" in causes()[-1]
    assert len(causes()) == 3


_SELECTED = """
  references:
    - version: v1
      kind: ConfigMap
      selector: spec.choose
"""


def test_a_wrong_selector_is_a_condition(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """In the patch of the run for the change, without another run; removed by the correction."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write(_SELECTED)
    kubectl.apply(echo("a", choose="for=a"))
    operator.start()
    wait_for_runs(operator, 1)
    failure = conditions(kubectl)["ExpressionFailure"]
    assert (failure["status"], failure["reason"]) == ("True", "InvalidExpression")
    text = f"references[0].selector of watches.yaml fails for Echo {kubectl.namespace}/a: "
    assert failure["message"].startswith(f"{text}spec.choose: not a label selector")
    metric = "operator_runner_expression_failures_total"
    assert operator.metric(metric, key="references[0].selector") == 1
    kubectl.merge(KIND, "a", {"spec": {"choose": {"matchLabels": {"for": "a"}}}})
    wait_for_runs(operator, 2)
    assert "ExpressionFailure" not in conditions(kubectl)
    kubectl.merge(KIND, "a", {"spec": {"choose": "for=a"}})
    wait_for_runs(operator, 3)
    assert conditions(kubectl)["ExpressionFailure"]["message"] == failure["message"]
    assert operator.metric(metric, key="references[0].selector") == 2
    assert len(operator.lines("Reconciling")) == 3


def test_selected_objects_start_a_run(kubectl: Kubectl, operator: Operator, project: Path) -> None:
    """ConfigMaps with its labels, created, edited and relabelled by others; no other ones."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write(_SELECTED)
    kubectl.apply(echo("a", choose={"matchLabels": {"for": "a"}}), echo("b"))
    operator.start()
    wait_for_runs(operator, 2)

    def causes() -> list[str]:
        return [line["cause"] for line in operator.lines("Reconciling")][2:]

    kubectl("create", "configmap", "others", "--from-literal=a=1")
    metadata = {"name": "words", "labels": {"for": "a"}}
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    changes: tuple[tuple[str, Json], ...] = (
        ("created", {}),
        ("changed", {"data": {"a": "2"}}),
        ("changed", {"metadata": metadata | {"labels": {"for": "b"}}}),
    )
    for number, (done, change) in enumerate(changes, start=1):
        kubectl.apply(body | change)
        eventually(causes, _at_least(number), details=operator.log)
        assert f"ConfigMap {kubectl.namespace}/words {done}" in causes()[-1]
    kubectl("delete", "configmap", "words")
    kubectl.apply(body)
    eventually(causes, _at_least(4), details=operator.log)
    assert ["created" in cause for cause in causes()] == [True, False, False, True]
