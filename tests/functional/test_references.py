"""Objects that a resource names or selects but did not make wake it, through a real API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.functional.test_operator import echo, wait_for_runs
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


def test_what_a_resource_names_wakes_it(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Its ConfigMap, made, edited and deleted by somebody else; another one does not."""
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
        eventually(causes, _at_least(number), told=operator.log)
        assert f"ConfigMap {kubectl.namespace}/words {done}" in causes()[-1]
    assert len(causes()) == 3


_SELECTED = """
  references:
    - version: v1
      kind: ConfigMap
      selector: spec.choose
"""


def test_what_a_resource_selects_wakes_it(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """ConfigMaps with its labels, created, edited and relabelled by somebody else; no others."""
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
        eventually(causes, _at_least(number), told=operator.log)
        assert f"ConfigMap {kubectl.namespace}/words {done}" in causes()[-1]
    kubectl("delete", "configmap", "words")
    kubectl.apply(body)
    eventually(causes, _at_least(4), told=operator.log)
    assert ["created" in cause for cause in causes()] == [True, False, False, True]
