"""`apply: server-side`: a role owns the fields that it sets, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.test_bounds import requests
from tests.functional.test_operator import ROLE, echo, wait_for_runs
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

MANAGER = "echo.test.example.com"
TASKS = """
- name: Write the Deployment
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: a
        namespace: "{{ ansible_operator_meta.namespace }}"
        annotations: "{{ notes | default({}) }}"
      spec:
        selector: {matchLabels: {app: a}}
        template:
          metadata: {labels: {app: a}}
          spec:
            containers:
              - name: web
                image: web
                env: "{{ env | default([]) }}"
"""
ONE, TWO = {"name": "ONE", "value": "1"}, {"name": "TWO", "value": "2"}


def deployment(kubectl: Kubectl) -> Json:
    """Return the Deployment with what the tests look at."""
    body = kubectl.get("deployment", "a") or {"metadata": {}, "spec": {}}
    metadata, spec = body["metadata"], body["spec"]
    container = spec.get("template", {}).get("spec", {}).get("containers", [{}])[0]
    return {
        "env": [each["name"] for each in container.get("env", [])],
        "image": container.get("image"),
        "replicas": spec.get("replicas"),
        "notes": {
            key: value
            for key, value in metadata.get("annotations", {}).items()
            if "kubernetes.io" not in key
        },
    }


def managers(kubectl: Kubectl) -> set[tuple[str, str]]:
    """Return manager and operation of all fields outside the status."""
    text = kubectl("get", "deployment/a", "--show-managed-fields", "--output=json")
    entries = json.loads(text)["metadata"]["managedFields"]
    return {(each["manager"], each["operation"]) for each in entries if not each.get("subresource")}


@pytest.fixture
def wait(kubectl: Kubectl, operator: Operator) -> Callable[..., None]:
    """Return a function that waits until the Deployment has these values."""

    def wait_for(**expected: object) -> None:
        eventually(
            lambda: deployment(kubectl),
            lambda found: found.items() >= expected.items(),
            details=operator.log,
        )

    return wait_for


def start(operator: Operator, project: Path, *, server_side: bool, tasks: str = TASKS) -> None:
    """Start the operator with a role that writes with or without apply."""
    watches = project / "watches.yaml"
    (project / ROLE).write_text(tasks)
    plain = watches.read_text().replace("  apply: server-side\n", "")
    watches.write_text(plain + ("  apply: server-side\n" if server_side else ""))
    operator.start()


def test_fields_of_a_role_are_its_own_and_those_of_others_stay(
    kubectl: Kubectl, operator: Operator, project: Path, wait: Callable[..., None]
) -> None:
    """What kubectl changes is undone, removed fields go, and replicas belong to who sets them."""
    start(operator, project, server_side=True)
    kubectl.apply(echo(env=[ONE, TWO], notes={"mine": "1"}))
    wait(env=["ONE", "TWO"], replicas=1, notes={"mine": "1"})
    assert managers(kubectl) == {(MANAGER, "Apply")}

    kubectl.apply(echo(env=[TWO]))
    wait(env=["TWO"], notes={})

    kubectl("scale", "deployment/a", "--replicas=3")
    kubectl("set", "env", "deployment/a", "EVIL=1")
    kubectl("set", "image", "deployment/a", "web=other")
    wait(env=["TWO"], image="web", replicas=3)
    kubectl("annotate", "deployment/a", "note=1", "--field-manager=somebody")
    kubectl.apply(echo(env=[ONE]))
    wait(env=["ONE"], image="web", replicas=3, notes={"note": "1"})
    kubectl("rollout", "restart", "deployment/a")
    kubectl.apply(echo(env=[TWO]))
    wait(env=["TWO"])
    restarted = "--output=jsonpath={.spec.template.metadata.annotations}"
    assert "restartedAt" in kubectl("get", "deployment/a", restarted)


def test_objects_that_were_written_without_apply_are_taken_over(
    kubectl: Kubectl, operator: Operator, project: Path, wait: Callable[..., None]
) -> None:
    """No field is lost or doubled, and a field that the role does not set any more goes."""
    start(operator, project, server_side=False)
    kubectl.apply(echo(env=[ONE, TWO], notes={"mine": "1"}))
    wait(env=["ONE", "TWO"], notes={"mine": "1"})
    assert (MANAGER, "Apply") not in managers(kubectl)
    operator.terminate()

    start(operator, project, server_side=True)
    kubectl.apply(echo(env=[TWO]))
    wait(env=["TWO"], notes={}, replicas=1)
    eventually(lambda: managers(kubectl), lambda found: found == {(MANAGER, "Apply")})
    owners = "--output=jsonpath={.metadata.ownerReferences[*].kind}"
    assert kubectl("get", "deployment/a", owners) == "Echo"


LIMITS = """
- name: Write an object that no controller writes, too
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: LimitRange
      metadata: {name: a, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec:
        limits: [{type: Pod, max: {cpu: "{{ cpu }}"}}]
"""


def test_an_object_costs_one_apply(kubectl: Kubectl, operator: Operator, project: Path) -> None:
    """Of the first run, of an edit, and of a run that changes nothing."""
    start(operator, project, server_side=True, tasks=LIMITS)
    specs: list[Json] = [{"cpu": "1"}, {"cpu": "2"}, {"cpu": "2", "other": "1"}]
    for count, spec in enumerate(specs, 1):
        before = requests(kubectl)
        kubectl.apply(echo(**spec))
        wait_for_runs(operator, count)
        sent = requests(kubectl) - before
        # Beside the LIST with which the watch of these objects begins.
        # Beside the LIST with which the watch of these objects begins.
        assert [sent[f"{verb} limitranges"] for verb in ("GET", "APPLY", "PATCH")] == [0, 1, 0]
