"""Runs that change nothing, and roles that change the same field in every run."""

from __future__ import annotations

from pathlib import Path

from tests.functional.test_operator import ROLE, echo, wait_for_runs
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
    eventually(lambda: len(events(kubectl, "RoleRan")), lambda count: count >= 4, told=operator.log)
    assert {line["changed"] for line in operator.lines("Reconciled")} == {0}
    tasks = {line["task"]: line["result"] for line in operator.lines("[playbook task]")}
    assert tasks["Hidden count"] == tasks["Count the runs"] == "changed"
    (event,) = events(kubectl, "Successful")
    assert event.get("series") is None
    assert " 0 changed" in event["note"]
