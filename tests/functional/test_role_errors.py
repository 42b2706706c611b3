"""A role that Ansible cannot load: few retries, a short Event, and the next save runs it."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

ECHO = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
SYNTAX = ("tasks/main.yml", "- debug: {\n    msg: a\n    var: b\n", "YAML parsing failed: ")
MODULE = ("tasks/main.yml", "- kubernetes.core.k8ss: {}\n", "couldn't resolve module/action")
ROLE = ("meta/main.yml", "dependencies: [{role: nope}]\n", "the role 'nope' was not found")


def _failure(kubectl: Kubectl) -> Json:
    """Return the condition Failure; empty while it is missing or not True."""
    found = kubectl.get("echoes.test.example.com", "a") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "Failure" and c["status"] == "True"), {})


def _notes(kubectl: Kubectl) -> list[str]:
    listed = kubectl.list("events.v1.events.k8s.io")
    return [event["note"] for event in listed if event["reason"] == "Failed"]


@pytest.mark.parametrize(("file", "content", "message"), [SYNTAX, MODULE, ROLE])
def test_with_reload_a_role_that_cannot_be_loaded_waits_for_the_next_save(
    operator: Operator, kubectl: Kubectl, file: str, content: str, message: str
) -> None:
    """One failure, with the excerpt in condition and log and one line in the Event; then a run."""
    role = operator.project / "roles" / "echo"
    broken = role / file
    broken.parent.mkdir(exist_ok=True)
    works = broken.read_text() if broken.exists() else "{}\n"
    broken.write_text(content)
    operator.start("--reload")
    kubectl.apply(ECHO)
    eventually(
        lambda: operator.lines("Will retry when a file of the project changes"),
        details=operator.log,
    )
    failure = _failure(kubectl)["message"]
    # ansible-core 2.21 begins all messages with a capital letter.
    assert failure.lower().startswith(message.lower())
    assert f"Origin: {broken}:" in failure
    assert "^ column" in failure
    (logged,) = operator.lines("Reconciliation failed")
    assert logged["error"] == failure
    (note,) = eventually(lambda: _notes(kubectl), details=operator.log)
    assert note.lower().startswith(message.lower())
    assert f"({broken}:" in note
    assert "\n" not in note
    broken.write_text(works)
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    assert not operator.lines("Will retry")
    assert all("retry" not in line["cause"] for line in operator.lines("Reconciling"))


def test_without_reload_the_backoff_of_such_a_role_begins_with_a_second(
    operator: Operator, kubectl: Kubectl
) -> None:
    """The delay doubles from there; a failed task is retried after milliseconds, as ever."""
    tasks = operator.project / "roles" / "echo" / "tasks" / "main.yml"
    works = tasks.read_text()
    tasks.write_text(SYNTAX[1])
    operator.start()
    kubectl.apply(ECHO)
    waits = eventually(
        lambda: operator.lines("Will retry"), lambda lines: len(lines) >= 2, details=operator.log
    )
    assert [line["seconds"] for line in waits[:2]] == [1, 2]
    tasks.write_text(works)
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    tasks.write_text(works + "- ansible.builtin.fail: {msg: not today}\n")
    count = len(operator.lines("Will retry"))
    kubectl.merge("echoes.test.example.com", "a", {"spec": {"sayThis": "again"}})
    waits = eventually(
        lambda: operator.lines("Will retry")[count:], lambda lines: lines, details=operator.log
    )
    assert waits[0]["seconds"] == 0.005


TASKS = """
- name: Write an invalid object
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: Not_Valid, namespace: default}}
  when: say_this == 'invalid'
- name: Write a kind that is missing
  kubernetes.core.k8s:
    definition: {apiVersion: nope.example.com/v1, kind: Nope, metadata: {name: a}}
  when: say_this == 'missing'
- name: Load variables
  ansible.builtin.include_vars: {file: nope.yml}
  when: say_this == 'file'
- name: Hide a failure
  ansible.builtin.command: {cmd: cat /nonexistent}
  no_log: true
  when: say_this == 'hidden'
- name: Wait for a workload
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web, namespace: default}
      spec:
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {serviceAccountName: nobody, containers: [{name: web, image: web}]}
    wait: true
    wait_sleep: 1
    wait_timeout: 2
  when: say_this == 'wait'
- name: Read as a user without permissions
  kubernetes.core.k8s_info: {kind: Secret, name: a, namespace: default, impersonate_user: nobody}
  when: say_this == 'forbidden'
- name: Run a command
  ansible.builtin.command: {cmd: cat /nonexistent}
  when: say_this == 'command'
- vars: {failure_reason: NotToday}
  block:
    - name: Run a command whose block has a reason
      ansible.builtin.command: {cmd: cat /nonexistent}
      when: say_this == 'chosen'
- name: Use a variable that is missing
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ nothing }}"}}
"""
MESSAGES = {
    "invalid": ("Failed to create object: ", "ConfigMap", "Not_Valid", "(Invalid, 422)"),
    "missing": ("Nope of nope.example.com/v1 is not served: is its CRD installed?",),
    "forbidden": (
        'secrets "a" is forbidden: ',
        "(Forbidden, 403); add the rule `get secrets`: `operator-runner rbac` derives it",
    ),
    "file": ("Could not find or access 'nope.yml'", "Searched in:", "/roles/echo/vars/nope.yml"),
    "hidden": ("output hidden by no_log; to see it, set `no_log: false`",),
    "wait": ("timed out waiting for Deployment web (Deployment web is not ready",),
    "command": ("", "non-zero return code 1: cat: /nonexistent: No such file or directory"),
    "chosen": ("", "non-zero return code 1: cat: /nonexistent: No such file or directory"),
    "undefined": ("'nothing' is undefined",),
}
REASONS = {
    "invalid": "Invalid",
    "missing": "NotServed",
    "forbidden": "Forbidden",
    "file": "TaskFailed",
    "hidden": "TaskFailed",
    "wait": "Timeout",
    "command": "CommandFailed",
    "chosen": "NotToday",
    "undefined": "UndefinedVariable",
}


def test_a_failure_has_one_text_one_event_and_one_status(
    operator: Operator, kubectl: Kubectl
) -> None:
    """The cause first, without headers and JSON; retries count the Event and write no status.

    A declared condition has the reason of each failure.
    """
    (operator.project / "roles" / "echo" / "tasks" / "main.yml").write_text(TASKS)
    with (operator.project / "watches.yaml").open("a") as watches:
        watches.write(
            "\n  kstatus: true\n  status: {conditions: [{type: Degraded, failed: true}]}\n"
        )
    operator.start()
    kubectl.apply(
        *(ECHO | {"metadata": {"name": name}, "spec": {"sayThis": name}} for name in MESSAGES)
    )

    def attempts(name: str) -> int:
        return sum(line["name"] == name for line in operator.lines("Will retry"))

    for name, texts in MESSAGES.items():
        eventually(partial(attempts, name), lambda count: count >= 3, details=operator.log)
        before = kubectl.get("echoes.test.example.com", name)
        assert before is not None
        (failure,) = (c for c in before["status"]["conditions"] if c["type"] == "Failure")
        assert failure["message"].startswith(texts[0])
        assert all(text in failure["message"] for text in texts)
        (degraded,) = (c for c in before["status"]["conditions"] if c["type"] == "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", REASONS[name])
        assert degraded["message"].startswith(texts[0])
        assert not [text for text in ("HTTP", "{", "Error while") if text in failure["message"]]
        eventually(partial(attempts, name), attempts(name).__lt__, details=operator.log)
        after = kubectl.get("echoes.test.example.com", name)
        assert after is not None
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    # One of the first run, and one of all retries.
    assert len(_notes(kubectl)) == 2 * len(MESSAGES)
