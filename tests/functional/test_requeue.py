"""A role that requeues, and that sets its own metrics and status."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from tests.functional.test_operator import KIND, ROLE, echo, wait_for_runs
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

TASKS = """
- name: Come back soon
  operator_sdk.util.requeue_after:
    time: 2s
  when: not (done | default(false))
- name: Come back later
  operator_sdk.util.requeue_after:
    time: 1h
  when: not (done | default(false))
- name: Count the runs
  operator_sdk.util.osdk_metric:
    name: echoes
    description: Runs of the role
    counter:
      increment: true
- name: Say how it went so far
  operator_sdk.util.k8s_status:
    api_version: test.example.com/v1
    kind: Echo
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      size: 3
    conditions:
      - type: Heard
        status: "True"
        reason: Because
        observedGeneration: 1
- name: Fail on request
  ansible.builtin.fail:
    msg: as it was asked for
  when: fail_now is defined
"""


def conditions(kubectl: Kubectl) -> dict[str, Json]:
    found = kubectl.get(KIND, "a")
    status: Json = (found or {}).get("status", {})
    return {each["type"]: each for each in status.get("conditions", [])}


def line_of(operator: Operator, number: int) -> dict[str, Any]:
    return operator.lines("Reconciled")[number]


def test_a_role_with_requeue_after_is_run_again(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The play runs to its end, the status is written, and then the first requested period starts.

    The resource is not Successful before a run ends without requeue_after, and is not written again
    while nothing changes. The conditions of the role are kept beside the operator's own
    conditions, and its metric is among the operator's.
    """
    role = project / ROLE
    role.write_text(role.read_text() + TASKS)
    operator.start()
    kubectl.apply(echo())
    wait_for_runs(operator, 1)
    first = conditions(kubectl)
    assert first["Running"]["reason"] == "Running"
    assert first["Running"]["message"] == (
        "Running reconciliation; the role asked to run again in 2s"
    )
    assert first["Running"]["ansibleResult"]["ok"] == 5
    assert "Successful" not in first
    wait_for_runs(operator, 2)
    version = kubectl.get(KIND, "a")["metadata"]["resourceVersion"]  # type: ignore[index]
    wait_for_runs(operator, 4)
    assert kubectl.get(KIND, "a")["metadata"]["resourceVersion"] == version  # type: ignore[index]
    assert [line_of(operator, number)["cause"] for number in (1, 2)] == ["requeue_after: 2s"] * 2
    assert conditions(kubectl)["Heard"] == first["Heard"]
    assert first["Heard"]["observedGeneration"] == 1
    assert kubectl.get(KIND, "a")["status"]["size"] == 3  # type: ignore[index]
    assert operator.metric("controller_runtime_reconcile_total", result="requeue_after") >= 2
    # The parser of the text format calls each counter that.
    assert operator.metric("echoes_total") >= 3
    kubectl.merge(KIND, "a", {"spec": {"done": True}})
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    assert conditions(kubectl)["Running"]["message"] == "Awaiting next reconciliation"
    # The requeue of the previous run may be due as well.
    assert any("spec: spec.done" in line["cause"] for line in operator.lines("Reconciled"))


def test_a_new_annotated_period_counts_from_the_edit(kubectl: Kubectl, operator: Operator) -> None:
    """The watch does not watch annotations, and the next run would be hours away."""
    operator.start()
    kubectl.apply(echo())
    wait_for_runs(operator, 1)
    period = "ansible.sdk.operatorframework.io/reconcile-period"
    kubectl.merge(KIND, "a", {"metadata": {"annotations": {period: "2s"}}})
    wait_for_runs(operator, 3)
    eventually(
        lambda: [line["cause"] for line in operator.lines("Reconciled")][1:3],
        lambda causes: causes == ["period: 2s"] * 2,
        details=operator.log,
    )


def test_an_invalid_annotation_is_reported_until_it_is_corrected(
    kubectl: Kubectl, operator: Operator
) -> None:
    """It is retried with backoff; a run follows the correction."""
    operator.start()
    invalid = echo()
    period = "ansible.sdk.operatorframework.io/reconcile-period"
    invalid["metadata"]["annotations"] = {period: "soon"}
    kubectl.apply(invalid)
    kubectl("wait", "--for=condition=Failure", f"{KIND}/a", "--timeout=180s")
    assert "Unable to parse reconcile period" in conditions(kubectl)["Failure"]["message"]
    kubectl.merge(KIND, "a", {"metadata": {"annotations": {period: "1h"}}})
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", "--timeout=180s")
    assert conditions(kubectl)["Failure"]["status"] == "False"


def test_a_run_that_fails_is_retried_instead(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A play that fails after requeue_after is a failure."""
    role = project / ROLE
    role.write_text(role.read_text() + TASKS)
    operator.start()
    kubectl.apply(echo(failNow=True))
    eventually(lambda: conditions(kubectl).get("Failure"), details=operator.log)
    assert conditions(kubectl)["Failure"]["message"].startswith("as it was asked for (task ")
    # Counted after the condition is written.
    eventually(lambda: operator.metric("controller_runtime_reconcile_total", result="error") >= 1)
    assert operator.metric("controller_runtime_reconcile_total", result="requeue_after") == 0


def test_a_taken_port_of_user_metrics_stops_no_operator(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """It works, warns once with a hint, and fails only the roles that send metrics."""
    role = project / ROLE
    role.write_text(role.read_text() + TASKS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        operator.start(f"--user-metrics-bind-address=127.0.0.1:{port}")
    (warning,) = operator.lines("Roles cannot send metrics")
    assert f"--user-metrics-bind-address=127.0.0.1:{port}: cannot listen (" in warning["error"]
    kubectl.apply(echo())
    eventually(lambda: conditions(kubectl).get("Failure"), details=operator.log)
    message = conditions(kubectl)["Failure"]["message"]
    assert message.startswith(f"No operator takes metrics at http://127.0.0.1:{port}/metrics: ")
