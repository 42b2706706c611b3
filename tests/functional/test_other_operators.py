"""Operators that serve the same resources notice each other; a replaced Pod is not another one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.command import run_command
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

KIND = "echoes.test.example.com"
WARNING = "Another operator writes the status of the same resources"
BRIEF = "--graceful-shutdown-timeout=1s"


@pytest.fixture
def make_pair(
    control_plane: Path, project: Path, tmp_path: Path
) -> Iterator[Callable[[str], tuple[Operator, Operator]]]:
    """Give a maker of two operators for one namespace."""
    made: list[Operator] = []

    def make(namespace: str) -> tuple[Operator, Operator]:
        for which in ("first", "second"):
            scratch = tmp_path / f"{which}-{namespace}"
            scratch.mkdir()
            made.append(Operator(project, control_plane, namespace, scratch, {}))
        return made[-2], made[-1]

    yield make
    for operator in made:
        operator.kill()


def test_two_operators_notice_each_other(
    control_plane_cluster: Cluster,
    kubectl: Kubectl,
    make_pair: Callable[[str], tuple[Operator, Operator]],
) -> None:
    """One of two that stay warns in log and Event; an operator that replaces another is silent.

    Both pairs see the same edits for the same time. The roles change nothing, so that only the
    conditions show the other one.
    """
    replaced = Kubectl(kubectl.program, f"{kubectl.namespace}-replaced")
    replaced("create", "namespace", replaced.namespace)
    staying, (old, new) = make_pair(kubectl.namespace), make_pair(replaced.namespace)
    numbers = itertools.count()

    def edit() -> None:
        body = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
        for one in (kubectl, replaced):
            one.apply(body | {"spec": {"ignored": str(next(numbers))}})

    for operator in (*staying, old):
        operator.start(BRIEF)
    edit()
    new.start(BRIEF)
    edit()
    assert old.terminate() == 0

    def warnings(*operators: Operator) -> int:
        return sum(len(operator.lines(WARNING)) for operator in operators)

    def look() -> int:
        edit()
        return warnings(*staying)

    eventually(look, seconds=300, details=staying[0].log)
    assert new.metric("reconciles_total") > 2
    assert warnings(old, new) == 0
    for operator in staying:
        assert warnings(operator) <= 1
        for line in operator.lines(WARNING):
            assert line["manager"] == "operator-runner"
            assert "--leader-elect" in line["hint"]
    where = f"--namespace={kubectl.namespace}", f"--kubeconfig={control_plane_cluster.kubeconfig}"
    # The Event is written after the line of the log.
    output = eventually(
        lambda: run_command(["why", "Echo/a", *where]).stdout,
        lambda output: "AnotherOperator" in output,
    )
    assert "WATCH_NAMESPACE" in output
