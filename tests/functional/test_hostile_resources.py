"""Resources of an attacker who wants to stop the operator: other resources are not affected."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.functional.test_operator import KIND, echo, wait_for_text
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

ODD_CONDITIONS: dict[str, Any] = {
    "a-text": "yes",
    "a-map": {"Failure": True},
    "of-no-maps": ["x", 1, None, ["y"], {}],
    "bare": [{"type": "Running"}, {"status": 1}, {"type": ["Failure"]}, {"type": "Successful"}],
    "numbers": [
        {"type": kind, "status": 1, "reason": 2, "message": 3, "lastTransitionTime": 4}
        for kind in ("Running", "Successful", "Failure", "Mine")
    ],
}


def nested(name: str, levels: int) -> str:
    """Return a resource whose spec is nested this deep, as JSON."""
    head = json.dumps(echo(name))
    return head.replace('"spec": {}', '"spec": ' + '{"a":' * levels + "1" + "}" * levels)


def create(kubectl: Kubectl, *objects: str) -> None:
    """Create objects given as JSON, which Python could not write."""
    for each in objects:
        kubectl("create", "--validate=false", "--filename=-", input_=each)


def conditions(kubectl: Kubectl, name: str) -> dict[str, Json]:
    found = kubectl("get", KIND, name, "--output=jsonpath={.status.conditions}")
    listed = json.loads(found) if found.startswith("[") else []
    return {str(each.get("type")): each for each in listed if isinstance(each, dict)}


def wait_for(kubectl: Kubectl, operator: Operator, name: str, type_: str) -> Json:
    return eventually(
        lambda: conditions(kubectl, name).get(type_) or {},
        lambda found: found.get("status") == "True",
        details=operator.log,
    )


def test_resources_that_are_too_deep_are_refused_and_all_others_are_reconciled(
    kubectl: Kubectl, operator: Operator
) -> None:
    """Listed or watched, each gets condition, Event and one log line, no run and no retry."""
    create(kubectl, nested("deep-1000", 1_000), nested("deep-400", 400), nested("deep-90", 90))
    kubectl.apply(echo("good"))
    operator.start()
    wait_for_text(kubectl, operator, "hello nothing", "good")
    create(kubectl, nested("deep-later", 5_000))
    for name in ("deep-1000", "deep-400", "deep-later"):
        message = wait_for(kubectl, operator, name, "Failure")["message"]
        assert "nested more than 100 levels deep at spec.a.a" in message
        assert "make it flatter" in message
        about = f"--field-selector=involvedObject.name={name}"
        eventually(
            partial(kubectl, "get", "events", about), lambda found: "make it flatter" in found
        )
    wait_for(kubectl, operator, "deep-90", "Successful")

    kubectl("patch", KIND, "deep-400", "--type=json", '--patch=[{"op":"remove","path":"/spec/a"}]')
    wait_for(kubectl, operator, "deep-400", "Successful")
    kubectl("delete", KIND, "deep-1000")
    kubectl.merge(KIND, "good", {"spec": {"sayThis": "again"}})
    wait_for_text(kubectl, operator, "hello again", "good")

    refused = [line["name"] for line in operator.lines("Reconciliation failed")]
    assert sorted(refused) == ["deep-1000", "deep-400", "deep-later"]
    assert operator.metric("workqueue_retries_total") == 0
    errors = partial(operator.metric, "controller_runtime_reconcile_total", result="error")
    eventually(errors, lambda number: number >= len(refused), details=operator.log)
    assert operator.probe("readyz") == 200
    assert "Traceback" not in operator.log()


def test_a_status_of_any_structure_is_repaired(kubectl: Kubectl, operator: Operator) -> None:
    """Invalid conditions do not fail a reconcile; large specs are passed to the role."""
    for name, odd in ODD_CONDITIONS.items():
        kubectl.apply(echo(name))
        patch = json.dumps({"status": {"conditions": odd}})
        kubectl("patch", KIND, name, "--subresource=status", "--type=merge", f"--patch={patch}")
    annotations = {
        f"ansible.sdk.operatorframework.io/{name}": "\u0663" * 5_000
        for name in ("verbosity", "max-runner-artifacts")
    }
    huge = echo("huge", sayThis="x", filler=["\u00e9" * 1_000] * 650)
    huge["metadata"]["annotations"] = annotations
    create(kubectl, json.dumps(huge))
    operator.start()
    for name in (*ODD_CONDITIONS, "huge"):
        wait_for(kubectl, operator, name, "Successful")
    wait_for_text(kubectl, operator, "hello x", "huge")
    assert conditions(kubectl, "numbers")["Mine"]["reason"] == 2
    assert "Traceback" not in operator.log()


def test_a_resource_recreated_during_a_run_is_a_new_one(
    kubectl: Kubectl, operator: Operator
) -> None:
    """The old run's verdict is dropped; the new resource is announced and has a run of its own."""
    watches = operator.project / "watches.yaml"
    watches.write_text(watches.read_text().partition("  finalizer:")[0])
    role = operator.project / "roles/echo/tasks/main.yml"
    role.write_text(
        role.read_text()
        + """
- name: Wait until the resource has been made again
  kubernetes.core.k8s_info:
    kind: ConfigMap
    name: go
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: go
  until: go.resources | length > 0
  retries: 300
  delay: 1
- name: Fail for the first resource
  ansible.builtin.fail: {msg: not this one}
  when: say_this == 'old'
"""
    )
    operator.start()
    kubectl.apply(echo(sayThis="old"))
    wait_for(kubectl, operator, "a", "Running")
    wait_for_text(kubectl, operator, "hello old")
    kubectl("delete", KIND, "a")
    # The garbage collector would delete it between the requests of the next run.
    eventually(lambda: kubectl.get("configmap", "a") is None, details=operator.log)
    kubectl.apply(echo(sayThis="new"))
    kubectl("create", "configmap", "go")
    wait_for(kubectl, operator, "a", "Successful")
    wait_for_text(kubectl, operator, "hello new")
    uid = kubectl("get", KIND, "a", "--output=jsonpath={.metadata.uid}")
    events = json.loads(kubectl("get", "events", "--output=json"))["items"]
    about = [(each["involvedObject"]["uid"] == uid, each["reason"]) for each in events]
    assert (True, "Failed") not in about, events
    assert conditions(kubectl, "a")["Failure"]["status"] == "False"
    assert operator.metric("workqueue_retries_total") == 0
