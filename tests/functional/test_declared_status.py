"""`status` and `wakeOn`: the status of objects of a role is shown, and its changes run the role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_operator import KIND, ROLE, echo, wait_for_runs
from tests.functional.test_readiness import causes, wait_for_causes
from tests.functional.test_requeue import conditions
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

# A Pod without a node: only the test writes its status.
POD = """
- name: Fail if the resource asks for it
  ansible.builtin.fail: {msg: the resource asks for it}
  when: say_this | default('') == 'fail'
- name: Write the Pod
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Pod
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      spec:
        schedulerName: none
        containers: [{name: web, image: registry.example.com/web:1}]
- name: Wait until the test goes on
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: go
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: found
  until: found.resources != []
  retries: 3000
  delay: 0.2
  when: say_this | default('') == 'wait'
"""
DECLARED = """
  wakeOn:
    - version: v1
      kind: Pod
      fields: [status.phase, "status.containerStatuses[0].restartCount"]
  status:
    fields:
      phase: dependents[?kind == 'Pod'] | [0].status.phase
      restarts: dependents[?kind == 'Pod'] | [0].status.containerStatuses[0].restartCount
      pod: "dependents[?kind == 'Pod'] | [0].{name: metadata.name, ip: status.podIP}"
      kinds: dependents[].kind
      data: dependents[].data
      size: length(resource.spec.list)
    conditions:
      - type: Available
        status: (dependents[?kind == 'Pod'] | [0].status.phase) == 'Running'
        reason: dependents[?kind == 'Pod'] | [0].status.reason
        message: result.message
"""


def set_status(kubectl: Kubectl, **status: Any) -> None:
    """Write the status of the Pod as a kubelet would."""
    patch = f"--patch={json.dumps({'status': status})}"
    kubectl("patch", "pod", "a", "--subresource=status", "--type=merge", patch)


def restarts(count: int) -> list[Json]:
    """Return the status of the container after so many restarts."""
    container = {"name": "web", "image": "web:1", "imageID": "", "ready": False}
    return [{**container, "restartCount": count}]


def status(kubectl: Kubectl) -> Json:
    return dict((kubectl.get(KIND, "a") or {}).get("status", {}))


def shown(kubectl: Kubectl, field: str) -> str:
    """Return a field of the status as text."""
    return str(status(kubectl).get(field))


def reasons(kubectl: Kubectl) -> list[str]:
    """Return the reasons of the warnings about the resource."""
    found = kubectl.list("events")
    return [each["reason"] for each in found if each["type"] == "Warning"]


@pytest.fixture
def declaring(kubectl: Kubectl, project: Path, operator: Operator) -> Operator:
    """Start an operator whose watch declares a status, and the fields that it is made of."""
    # Without it no Pod is accepted, and the run would fail and be repeated.
    kubectl.wait_for_account()
    role = project / ROLE
    role.write_text(role.read_text() + POD)
    with (project / "watches.yaml").open("a") as watches:
        watches.write(DECLARED)
    return operator.start()


def test_a_status_follows_the_objects_of_the_role(kubectl: Kubectl, declaring: Operator) -> None:
    """One run and one request for each change of a chosen field, none for other fields."""
    kubectl.apply(echo(list=[1]))
    eventually(lambda: shown(kubectl, "phase"), "Pending".__eq__, details=declaring.log)
    found = status(kubectl)
    assert found["kinds"] == ["ConfigMap", "Pod"]
    assert found["pod"] == {"name": "a"}
    assert found["size"] == 1
    assert "restarts" not in found
    assert found["data"] == []
    available = conditions(kubectl)["Available"]
    assert (available["status"], available["reason"]) == ("False", "NotAvailable")
    wait_for_runs(declaring, 1)
    patches = declaring.metric("rest_client_requests_total", method="PATCH")
    set_status(kubectl, message="of no interest", reason="Fine")
    set_status(kubectl, phase="Running", podIP="10.0.0.1")
    eventually(lambda: shown(kubectl, "phase"), "Running".__eq__, details=declaring.log)
    assert status(kubectl)["pod"] == {"name": "a", "ip": "10.0.0.1"}
    available = conditions(kubectl)["Available"]
    assert (available["status"], available["reason"]) == ("True", "Fine")
    assert available["message"] == "Last reconciliation succeeded"
    wait_for_causes(declaring, 2)
    pod = f"dependent: Pod {kubectl.namespace}/a"
    assert causes(declaring) == ["spec: created", f"{pod} status.phase Pending to Running"]
    # The tasks of the role patch two objects, and the status is one more.
    assert declaring.metric("rest_client_requests_total", method="PATCH") == patches + 3
    assert reasons(kubectl) == []
    # An expression that fails, in a run that fails: each is reported once.
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "fail", "list": None}})
    failed = "the resource asks for it"
    eventually(
        lambda: conditions(kubectl)["Available"]["message"],
        lambda text: text.startswith(failed),
        details=declaring.log,
    )
    assert conditions(kubectl)["Available"]["status"] == "True"
    assert status(kubectl)["size"] == 1
    eventually(lambda: reasons(kubectl).count("InvalidExpression"), (1).__eq__)
    failure = conditions(kubectl)["ExpressionFailure"]
    assert failure["message"].startswith("status.fields.size of watches.yaml fails: length(")
    metric = "operator_runner_expression_failures_total"
    assert declaring.metric(metric, key="status.fields.size") == 1
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    eventually(lambda: conditions(kubectl)["Available"]["message"], available["message"].__eq__)
    kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    eventually(lambda: shown(kubectl, "phase"), "Pending".__eq__, details=declaring.log)
    assert reasons(kubectl).count("InvalidExpression") == 1
    kubectl.merge(KIND, "a", {"spec": {"list": [1, 2]}})
    eventually(lambda: shown(kubectl, "size"), "2".__eq__, details=declaring.log)
    assert "ExpressionFailure" not in conditions(kubectl)


WRONG_FIELD = """
  wakeOn:
    - version: v1
      kind: Pod
      fields: [length(status.containerStatuses)]
"""


def test_a_wrong_field_of_wake_on_is_a_condition_of_the_owner(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Until it has a value."""
    role = project / ROLE
    role.write_text(role.read_text() + POD)
    with (project / "watches.yaml").open("a") as watches:
        watches.write(WRONG_FIELD)
    operator.start()
    kubectl.apply(echo())
    found = eventually(
        lambda: conditions(kubectl).get("ExpressionFailure", {}), details=operator.log
    )
    text = f"wakeOn[0].fields[0] of watches.yaml fails for Pod {kubectl.namespace}/a: "
    assert found["message"].startswith(text)
    set_status(kubectl, containerStatuses=restarts(1))
    eventually(
        lambda: "ExpressionFailure" in conditions(kubectl),
        lambda each: not each,
        details=operator.log,
    )


@pytest.mark.slow
def test_a_hundred_changes_coalesce(kubectl: Kubectl, declaring: Operator) -> None:
    """Changes during a run lead to one run after it, with the last value in the status."""
    kubectl.apply(echo(sayThis="wait", list=[]))
    eventually(lambda: kubectl.get("pod", "a"), lambda pod: pod is not None, details=declaring.log)
    for number in range(1, 101):
        set_status(kubectl, containerStatuses=restarts(number))
    assert declaring.metric("reconciles_total") == 0
    kubectl("create", "configmap", "go")
    eventually(lambda: shown(kubectl, "restarts"), "100".__eq__, details=declaring.log)
    wait_for_causes(declaring, 1)
    # The last events may arrive after the end of the run; those are one more group.
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "more"}})
    eventually(
        lambda: causes(declaring)[-1], lambda cause: "spec.sayThis" in cause, details=declaring.log
    )
    assert 2 <= len(causes(declaring)) <= 4
    assert "status.containerStatuses[0].restartCount" in causes(declaring)[1]


READ_CONFIG_MAP = """
- name: Read what was said
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    name: said
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: said
- name: Report it
  operator_sdk.util.k8s_status:
    api_version: test.example.com/v1
    kind: Echo
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions:
      - type: Heard
        status: "True"
        reason: "{{ said.resources[0].data.word }}"
"""
REPORTED = """
  references:
    - version: v1
      kind: ConfigMap
      name: "'said'"
  status:
    fields:
      heard: resource.status.conditions[?type == 'Heard'] | [0].reason
"""


@pytest.mark.slow
def test_a_condition_that_a_task_wrote_is_seen_at_the_end_of_its_run(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Also by a run that changes nothing else."""
    role = project / ROLE
    role.write_text(role.read_text() + READ_CONFIG_MAP)
    with (project / "watches.yaml").open("a") as watches:
        watches.write(REPORTED)
    kubectl("create", "configmap", "said", "--from-literal=word=Word0")
    kubectl.apply(echo())
    operator.start()
    wait_for_runs(operator, 1)
    for number in (1, 2):
        kubectl.merge("configmap", "said", {"data": {"word": f"Word{number}"}})
        eventually(lambda: shown(kubectl, "heard"), f"Word{number}".__eq__, details=operator.log)


STRICT = """
- group: test.example.com
  version: v1
  kind: Strict
  role: echo
  vars: {greeting: hello}
  status:
    fields:
      members: "'three'"
      good: "'yes'"
      unknown: "'dropped'"
    conditions:
      - {type: Available, status: "`true`"}
"""


@pytest.fixture
def strict_kind(kubectl: Kubectl) -> Iterator[str]:
    """Install a CRD with a schema of the status; give the name of its resource."""
    texts = {name: {"type": "string"} for name in ("type", "status", "reason", "message")}
    condition = {
        "type": "object",
        "properties": texts | {"lastTransitionTime": {"type": "string"}},
        "required": ["type", "status", "reason"],
    }
    properties = {
        "members": {"type": "integer"},
        "good": {"type": "string"},
        "conditions": {"type": "array", "items": condition},
    }
    schema = {
        "type": "object",
        "properties": {"status": {"type": "object", "properties": properties}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    name = "stricts.test.example.com"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": "test.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Strict", "plural": "stricts"},
            "versions": [version],
        },
    }
    kubectl.apply(crd)
    kubectl.wait_for_kinds(name)
    yield name
    kubectl("delete", "crd", name)


def test_fields_that_the_crd_refuses_or_drops_are_reported(
    kubectl: Kubectl, operator: Operator, project: Path, strict_kind: str
) -> None:
    """The conditions and the other fields are written, and a steady resource stays as it is."""
    watches = STRICT + "  reconcilePeriod: 1s\n"
    (project / "watches.yaml").write_text(watches)
    operator.start()
    kubectl.apply(
        {"apiVersion": "test.example.com/v1", "kind": "Strict", "metadata": {"name": "a"}}
    )

    def found() -> Json:
        return dict((kubectl.get(strict_kind, "a") or {}).get("status", {}))

    eventually(lambda: str(found().get("good")), "yes".__eq__, details=operator.log)
    types = {each["type"]: each["status"] for each in found()["conditions"]}
    assert types["Available"] == types["Successful"] == "True"
    assert {"members", "unknown"}.isdisjoint(found())
    wait_for_runs(operator, 3)
    written = (kubectl.get(strict_kind, "a") or {})["metadata"]["resourceVersion"]
    wait_for_runs(operator, 6)
    assert (kubectl.get(strict_kind, "a") or {})["metadata"]["resourceVersion"] == written
    notes = [e["message"] for e in kubectl.list("events") if e["reason"] == "InvalidStatus"]
    assert len(notes) == 2
    assert any("status.members is not written: " in note for note in notes)
    assert any("add properties.status.properties.unknown" in note for note in notes)
