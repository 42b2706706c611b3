"""The operator reports to OLM whether it can be upgraded: before, during and after a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.functional.test_operator import ROLE, echo
from tests.support.kubectl import Kubectl
from tests.support.olm import CONDITION, condition_of, crd, operator_condition
from tests.support.operator import Operator
from tests.support.processes import new_nap, sleepers
from tests.support.waiting import eventually

NAME = "echo.v0.0.1"


@pytest.fixture
def operator(
    control_plane_cluster: Cluster, kubectl: Kubectl, project: Path, tmp_path: Path
) -> Iterator[Operator]:
    """Give an operator as OLM starts it, in the test's namespace, with its OperatorCondition."""
    control_plane_cluster.exec(
        ["kubectl", "apply", "--server-side", "--filename", str(crd("operatorconditions"))]
    )
    kubectl.wait_for_kinds(CONDITION)
    kubectl.apply(operator_condition(NAME))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(control_plane_cluster.kubeconfig.read_text())
    here = Kubectl(control_plane_cluster.home.tools / "kubectl", kubectl.namespace)
    here("config", "set-context", "--current", f"--kubeconfig={kubeconfig}")
    operator = Operator(
        project, kubeconfig, kubectl.namespace, tmp_path, {"OPERATOR_CONDITION_NAME": NAME}
    )
    yield operator
    operator.kill()


def test_an_upgrade_waits_for_a_run_that_must_not_be_broken(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """True at rest, False while the run sleeps, and True again when the operator has ended."""
    nap = new_nap()
    role = project / ROLE
    role.write_text(
        f"- ansible.builtin.shell: sleep {nap}\n  when: sleepy | default(false)\n"
        + role.read_text()
    )
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  blockUpgrade: spec.sleepy\n")

    def wait_for_upgradeable(status: str) -> None:
        eventually(
            lambda: condition_of(kubectl, NAME).get("status"),
            lambda now: now == status,
            details=operator.log,
        )

    operator.start("--graceful-shutdown-timeout=0s")
    wait_for_upgradeable("True")
    kubectl.apply(echo("calm"))
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    assert condition_of(kubectl, NAME)["status"] == "True"

    kubectl.apply(echo("a", sleepy=True))
    eventually(lambda: sleepers(nap), details=operator.log)
    busy = condition_of(kubectl, NAME)
    assert (busy["status"], busy["reason"]) == ("False", "OperatorBusy")
    assert f"Echo {kubectl.namespace}/a" in busy["message"]

    operator.terminate()
    wait_for_upgradeable("True")
