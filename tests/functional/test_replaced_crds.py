"""A CRD of dependents that is replaced by one with another plural or scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.functional.test_operator import echo
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

_GROUP = "replaced.example.com"
_ROLE = f"""
- name: Write a Part
  kubernetes.core.k8s:
    definition:
      apiVersion: {_GROUP}/v1
      kind: Part
      metadata: {{name: part, namespace: "{{{{ ansible_operator_meta.namespace }}}}"}}
      spec: {{text: "{{{{ say_this }}}}"}}
"""


def _crd(plural: str) -> Json:
    schema: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Part", "plural": plural, "singular": plural},
            "versions": [version],
        },
    }


@pytest.fixture
def install(control_plane_cluster: Cluster, kubectl: Kubectl) -> Iterator[Callable[[str], None]]:
    """Give a function that installs the CRD with a plural; it is deleted at the end."""
    plurals = []

    def installed(plural: str) -> None:
        plurals.append(plural)
        kubectl("apply", "--filename=-", input_=yaml.safe_dump(_crd(plural)))
        kubectl.wait_for_kinds(f"{plural}.{_GROUP}")

    yield installed
    for plural in plurals:
        name = f"crd/{plural}.{_GROUP}"
        control_plane_cluster.exec(["kubectl", "delete", "--ignore-not-found", name])


def test_dependents_with_another_plural_are_written_and_watched(
    kubectl: Kubectl, operator: Operator, install: Callable[[str], None]
) -> None:
    """A run that fails because its client knows the old plural is repeated with the new one."""
    install("parts")
    (operator.project / "roles/echo/tasks/main.yml").write_text(_ROLE)
    operator.start()
    kubectl.apply(echo(say_this="a"))

    def text(plural: str) -> str:
        part = kubectl.get(f"{plural}.{_GROUP}", "part")
        return part["spec"]["text"] if part else ""

    eventually(lambda: text("parts"), lambda now: now == "a", details=operator.log)
    kubectl("delete", f"crd/parts.{_GROUP}")
    install("pieces")
    kubectl.apply(echo(say_this="b"))
    eventually(lambda: text("pieces"), lambda now: now == "b", details=operator.log)
    kubectl("delete", f"pieces.{_GROUP}", "part")
    eventually(lambda: text("pieces"), lambda now: now == "b", details=operator.log)
