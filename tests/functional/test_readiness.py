"""Roles that read the status of their objects are run again when it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.test_operator import KIND, ROLE, echo, wait_for_runs
from tests.functional.test_requeue import conditions
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

SERVE = """
- name: Write the Deployment
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
        labels:
          text: "{{ say_this | default('nothing') }}"
      spec:
        replicas: 2
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            containers: [{name: web, image: registry.example.com/web:1}]
- name: Read it
  kubernetes.core.k8s_info:
    api_version: apps/v1
    kind: Deployment
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: found
- name: Say whether it serves
  operator_sdk.util.k8s_status:
    api_version: test.example.com/v1
    kind: Echo
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions:
      - type: DeploymentNotReady
        status: "{{ 'False' if ready | int == 2 else 'True' }}"
        reason: AsItIs
  vars:
    ready: "{{ found.resources[0].status.readyReplicas | default(0) }}"
"""
WITHOUT_REPLICAS = """
- name: Write a Deployment without replicas
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      spec:
        replicas: 0
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec:
            containers: [{name: web, image: registry.example.com/web:1}]
"""
DECLARED = """
  status:
    fields:
      available: dependents[?kind == 'Deployment'] | [0].status.conditions[0].status
"""
CLUSTER_ROLE = """
- name: Write what is in no namespace
  kubernetes.core.k8s:
    definition:
      apiVersion: rbac.authorization.k8s.io/v1
      kind: ClusterRole
      metadata:
        name: "{{ ansible_operator_meta.namespace }}"
      rules: []
"""


def causes(operator: Operator) -> list[str]:
    return [line["cause"] for line in operator.lines("Reconciled")]


def wait_for_causes(operator: Operator, count: int) -> None:
    """Wait until the log has this many reconciles: it is written beside the event loop."""
    eventually(lambda: causes(operator), lambda found: len(found) >= count, details=operator.log)


def pods(kubectl: Kubectl) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in kubectl.list("pods", "app=web"))


def set_ready(kubectl: Kubectl, pod: str, status: str) -> None:
    """Write the status as a kubelet does."""
    body = {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}
    patch = f"--patch={json.dumps({'status': body})}"
    kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", patch)


def ready_replicas(kubectl: Kubectl) -> int:
    found: Json = kubectl.get("deployment", "a") or {}
    return int(found.get("status", {}).get("readyReplicas", 0))


def not_ready(kubectl: Kubectl) -> str:
    return str(conditions(kubectl).get("DeploymentNotReady", {}).get("status", ""))


def test_a_role_converges_with_its_objects(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """One run for each change of readiness, in both directions, and none for counters.

    An edit that changes nothing in readiness is one reconcile.
    """
    role = project / ROLE
    role.write_text(role.read_text() + SERVE)
    operator.start()
    kubectl.apply(echo())
    first, second = eventually(lambda: pods(kubectl), lambda found: len(found) == 2)
    eventually(lambda: not_ready(kubectl), "True".__eq__, details=operator.log)
    set_ready(kubectl, first, "True")
    eventually(lambda: ready_replicas(kubectl), (1).__eq__)
    set_ready(kubectl, second, "True")
    eventually(lambda: not_ready(kubectl), "False".__eq__, details=operator.log)
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    wait_for_runs(operator, 3)
    set_ready(kubectl, first, "False")
    eventually(lambda: not_ready(kubectl), "True".__eq__, details=operator.log)
    set_ready(kubectl, first, "True")
    eventually(lambda: not_ready(kubectl), "False".__eq__, details=operator.log)
    # The role writes the condition before its run ends.
    wait_for_causes(operator, 5)
    deployment = f"dependent: Deployment {kubectl.namespace}/a"
    assert causes(operator) == [
        "spec: created",
        f"{deployment} became ready",
        "spec: spec.sayThis",
        f"{deployment} became not ready",
        f"{deployment} became ready",
    ]
    assert operator.metric("operator_runner_reconcile_loops_throttled_total") == 0


@pytest.mark.parametrize("declared", [False, True])
def test_a_new_workload_without_replicas_starts_a_run_only_for_a_declared_status(
    kubectl: Kubectl, operator: Operator, project: Path, declared: bool
) -> None:
    """There is nothing that it has to wait for; a declared status shows its conditions."""
    role = project / ROLE
    role.write_text(role.read_text() + WITHOUT_REPLICAS)
    if declared:
        with (project / "watches.yaml").open("a") as watches:
            watches.write(DECLARED)
    operator.start()
    kubectl.apply(echo())

    def observed() -> bool:
        deployment: Json = kubectl.get("deployment", "a") or {}
        return bool(deployment.get("status", {}).get("conditions"))

    eventually(observed, details=operator.log)
    if declared:
        eventually(
            lambda: (kubectl.get(KIND, "a") or {}).get("status", {}).get("available"),
            "True".__eq__,
            details=operator.log,
        )
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    wait_for_causes(operator, 2 + declared)
    assert causes(operator) == [
        "spec: created",
        *[f"dependent: Deployment {kubectl.namespace}/a status is up to date"] * declared,
        "spec: spec.sayThis",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("enabled", [False, True])
def test_cluster_scoped_objects_reconcile_their_owner_if_enabled(
    kubectl: Kubectl, operator: Operator, project: Path, enabled: bool
) -> None:
    """Without watchClusterScopedResources cluster-scoped objects are created and not watched."""
    role = project / ROLE
    role.write_text(role.read_text() + CLUSTER_ROLE)
    if enabled:
        with (project / "watches.yaml").open("a") as watches:
            watches.write("  watchClusterScopedResources: true\n")
    operator.start()
    kubectl.apply(echo())
    wait_for_runs(operator, 1)
    kubectl("delete", "clusterrole", kubectl.namespace)
    if enabled:
        again = ("get", "clusterrole", kubectl.namespace)
        eventually(lambda: kubectl.run(*again).returncode, (0).__eq__, details=operator.log)
    wait_for_runs(operator, 1 + enabled)
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    wait_for_runs(operator, 2 + enabled)
    wait_for_causes(operator, 2 + enabled)
    deleted = f"dependent: ClusterRole {kubectl.namespace} deleted"
    assert causes(operator) == ["spec: created", *([deleted] * enabled), "spec: spec.sayThis"]
    kubectl("delete", "clusterrole", kubectl.namespace)


SEVERAL = """
- name: Write several Deployments
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: "{{ ansible_operator_meta.name }}-{{ item }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      spec:
        replicas: 1
        selector: {matchLabels: {app: web, part: "{{ item }}"}}
        template:
          metadata: {labels: {app: web, part: "{{ item }}"}}
          spec:
            containers: [{name: web, image: registry.example.com/web:1}]
  loop: [one, two, three, four, five]
- name: Take time
  command: sleep 8
- name: Count those that are ready
  operator_sdk.util.k8s_status:
    api_version: test.example.com/v1
    kind: Echo
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions:
      - {type: Counted, status: "True", reason: "Ready{{ found | length }}"}
  vars:
    found: >-
      {{ query('kubernetes.core.k8s', api_version='apps/v1', kind='Deployment',
      namespace=ansible_operator_meta.namespace) | selectattr('status.readyReplicas', 'defined') }}
"""


def test_objects_that_become_ready_one_after_the_other_start_few_runs(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Readiness waits for more of it, the last one is seen at once, and an edit does not wait."""
    role = project / ROLE
    role.write_text(role.read_text() + SEVERAL)
    operator.start()
    kubectl.apply(echo())
    found = eventually(lambda: pods(kubectl), lambda found: len(found) == 5)
    wait_for_causes(operator, 1)
    for pod in found:
        set_ready(kubectl, pod, "True")
    eventually(
        lambda: conditions(kubectl).get("Counted", {}).get("reason"),
        "Ready5".__eq__,
        details=operator.log,
    )
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    eventually(lambda: causes(operator)[-1], "spec: spec.sayThis".__eq__, details=operator.log)
    assert len(causes(operator)) <= 4


JUDGED = """
  kstatus: true
  status:
    conditions:
      - {type: Available, ready: dependents}
"""


def set_waiting(kubectl: Kubectl, pod: str, reason: str) -> None:
    """Write the status of a Pod whose container waits, as a kubelet does."""
    container = {"name": "web", "image": "web:1", "imageID": "", "ready": False, "restartCount": 0}
    container["state"] = {"waiting": {"reason": reason, "message": f"{reason} of web:1"}}
    patch = f"--patch={json.dumps({'status': {'containerStatuses': [container]}})}"
    kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", patch)


def state_of(kubectl: Kubectl, type_: str) -> tuple[str, str]:
    found = conditions(kubectl).get(type_, {})
    return str(found.get("status")), str(found.get("reason"))


def test_ready_is_about_the_objects_too(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """With the cause that their Pods have; it does not flap, and an edit is two writes."""
    role = project / ROLE
    role.write_text(role.read_text() + SERVE.partition("- name: Read it")[0])
    with (project / "watches.yaml").open("a") as watches:
        watches.write(JUDGED)
    operator.start()
    kubectl.apply(echo())

    def wait_for(status: str, reason: str) -> None:
        wanted = (status, reason)
        eventually(lambda: state_of(kubectl, "Ready"), wanted.__eq__, details=operator.log)

    wait_for("False", "DependentNotReady")
    assert state_of(kubectl, "Reconciling") == ("True", "DependentNotReady")
    assert state_of(kubectl, "Available") == ("False", "DependentNotReady")
    assert state_of(kubectl, "Successful")[0] == "True"
    first, second = eventually(lambda: pods(kubectl), lambda found: len(found) == 2)
    set_waiting(kubectl, first, "ErrImagePull")
    wait_for("False", "ImagePullFailed")
    message = "Deployment a is not ready: container web cannot pull image web:1"
    assert conditions(kubectl)["Available"]["message"] == message
    for reason in ("ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        set_waiting(kubectl, second, reason)
        set_waiting(kubectl, first, reason)
    for pod in (first, second):
        set_waiting(kubectl, pod, "ContainerCreating")
        set_ready(kubectl, pod, "True")
    wait_for("True", "Succeeded")
    assert state_of(kubectl, "Available") == ("True", "DependentsReady")
    assert not {"Reconciling", "Stalled"} & conditions(kubectl).keys()
    wait_for_causes(operator, 3)
    patches = operator.metric("rest_client_requests_total", method="PATCH")
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "again"}})
    kubectl("wait", f"{KIND}/a", "--for=condition=Ready", "--timeout=60s")
    wait_for_causes(operator, 4)
    # Two objects of the role, and the start and the end of the run.
    assert operator.metric("rest_client_requests_total", method="PATCH") == patches + 4
    set_ready(kubectl, first, "False")
    wait_for("False", "DependentNotReady")
    wait_for_causes(operator, 5)
    deployment = f"dependent: Deployment {kubectl.namespace}/a"
    assert causes(operator) == [
        "spec: created",
        f"{deployment} is not ready: ImagePullFailed",
        f"{deployment} became ready",
        "spec: spec.sayThis",
        f"{deployment} became not ready",
    ]
