"""Runs that change nothing, and roles that change the same field in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.test_operator import ROLE, echo, wait_for_runs
from tests.functional.test_past_runs import why
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

PERIOD = {"ansible.sdk.operatorframework.io/reconcile-period": "1s"}
REPORTS = """
- name: Count the runs
  operator_sdk.util.osdk_metric:
    name: echo_runs
    description: Runs of the role
    counter: {increment: true}
- name: Hidden count
  operator_sdk.util.osdk_metric:
    name: echo_hidden_runs
    description: Runs of the role
    counter: {increment: true}
  no_log: true
- name: Time of the run
  operator_sdk.util.k8s_status:
    api_version: test.example.com/v1
    kind: Echo
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      last: "{{ lookup('pipe', 'date +%s%N') }}"
- name: Record the run
  operator_sdk.util.k8s_event:
    name: "run-{{ lookup('pipe', 'date +%s%N') }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    type: Normal
    reason: RoleRan
    message: the role ran
    involvedObject:
      apiVersion: test.example.com/v1
      kind: Echo
      name: "{{ ansible_operator_meta.name }}"
      namespace: "{{ ansible_operator_meta.namespace }}"
- name: Come back soon
  operator_sdk.util.requeue_after:
    time: 1s
"""


def events(kubectl: Kubectl, reason: str) -> list[Json]:
    listed = kubectl.list("events.v1.events.k8s.io")
    return [event for event in listed if event["reason"] == reason]


def test_reports_are_not_changes(kubectl: Kubectl, operator: Operator, project: Path) -> None:
    """A role that only reports metrics, status and Events has one Event, for its first run."""
    (project / ROLE).write_text(REPORTS)
    operator.start()
    kubectl.apply(echo("a"))
    wait_for_runs(operator, 4)
    eventually(
        lambda: len(events(kubectl, "RoleRan")), lambda count: count >= 4, details=operator.log
    )
    assert {line["changed"] for line in operator.lines("Reconciled")} == {0}
    tasks = {line["task"]: line["result"] for line in operator.lines("[playbook task]")}
    assert tasks["Hidden count"] == tasks["Count the runs"] == "changed"
    (event,) = events(kubectl, "Successful")
    assert event.get("series") is None
    assert " 0 changed" in event["note"]


NOT_IDEMPOTENT = """
- name: Settings
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: settings, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {color: blue, time: "{{ lookup('pipe', 'date +%s%N') }}"}
- name: Password
  kubernetes.core.k8s:
    apply: true
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: db, namespace: "{{ ansible_operator_meta.namespace }}"}
      stringData:
        password: "{{ lookup('password', '/dev/null', length=20, chars=['ascii_letters']) }}"
        user: admin
  no_log: true
- name: Steady
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: steady, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {color: blue}
"""


def resource() -> Json:
    body = echo("a")
    body["metadata"]["annotations"] = PERIOD
    return body


def not_idempotent(operator: Operator) -> float:
    return operator.metric("operator_runner_not_idempotent_resources", kind="Echo")


@pytest.mark.parametrize("executor", ["warm", pytest.param("cold", marks=pytest.mark.slow)])
def test_fields_that_change_in_every_run_are_reported(
    kubectl: Kubectl, operator: Operator, project: Path, control_plane: Path, executor: str
) -> None:
    """Log, Event, metric and `why` name task, object and field, once, until the role is fixed."""
    role = project / ROLE
    role.write_text(NOT_IDEMPOTENT)
    operator.start(f"--executor={executor}")
    kubectl.apply(resource())
    eventually(lambda: not_idempotent(operator), lambda count: count == 1, details=operator.log)
    wait_for_runs(operator, int(operator.metric("reconciles_total")) + 3)

    lines = operator.lines("Role is not idempotent")
    found = {(line["task"], line["object"], line["fields"]) for line in lines}
    expected = {
        ("Settings", f"ConfigMap {kubectl.namespace}/settings", "data.time"),
        ("Password", f"Secret {kubectl.namespace}/db", "data.password"),
    }
    assert found == expected
    assert len(lines) == len(expected)
    noted = events(kubectl, "NotIdempotent")
    assert all(event.get("series") is None for event in noted)
    ours = ("-n", kubectl.namespace, f"--kubeconfig={control_plane}")
    history = why("echoes.test.example.com/a", *ours)
    for task, name, field in expected:
        text = f"Not idempotent: task '{task}' changes {field} of {name} in every run"
        assert sum(text in event["note"] for event in noted) == 1
        assert text in history
        assert text in why("echo/a", *ours, "--work-dir", operator.scratch / "work")

    results = operator.lines("[playbook task]")
    assert {line["result"] for line in results if line["task"] == "Password"} == {"changed"}
    assert "admin" not in operator.log()
    secret = kubectl.get("secret", "db")
    assert secret is not None
    assert str(secret["data"]["password"]) not in operator.log()

    role.write_text(NOT_IDEMPOTENT[NOT_IDEMPOTENT.index("- name: Steady") :])
    eventually(lambda: not_idempotent(operator), lambda count: count == 0, details=operator.log)


PHASES = """
- name: Objects
  kubernetes.core.k8s_info:
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    name: web
  register: found
- name: Web
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: web, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {phase: "{{ 'created' if found.resources else 'new' }}"}
"""


def test_a_role_that_converges_in_two_runs_is_not_reported(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The second run changes a field because of the objects of the first one."""
    (project / ROLE).write_text(PHASES)
    operator.start()
    kubectl.apply(resource())
    wait_for_runs(operator, 6)
    web = kubectl.get("configmap", "web")
    assert web is not None
    assert web["data"] == {"phase": "created"}
    assert not operator.lines("Role is not idempotent")
    assert not_idempotent(operator) == 0


def test_a_field_that_is_reverted_from_outside_is_not_reported(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The role writes one value in all runs: it is another writer that changes the field."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  watchDependentResources: false\n")
    operator.start()
    kubectl.apply(resource())
    for number in range(1, 5):
        wait_for_runs(operator, int(operator.metric("reconciles_total")) + 2)
        kubectl.merge("configmap", "a", {"data": {"text": f"theirs {number}"}})
    assert not operator.lines("Role is not idempotent")
    assert not_idempotent(operator) == 0
