"""Patterns of docs/good-role.md, run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

from operator_runner.core.model import Json
from tests.functional.test_readiness import set_ready
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY, Operator
from tests.support.waiting import eventually

KIND = "webs.example.com"
WATCH = """
- group: example.com
  version: v1
  kind: Web
  role: web
  profile: strict
  gatherFacts: false
  apply: server-side
"""
TASKS = """
- name: Read the Deployment
  kubernetes.core.k8s_info:
    api_version: apps/v1
    kind: Deployment
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: web_found
- name: Write the Deployment
  kubernetes.core.k8s:
    template: deployment.yaml.j2
"""
TEMPLATE = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ ansible_operator_meta.name | to_json }}
  namespace: {{ ansible_operator_meta.namespace | to_json }}
METADATA
spec:
  progressDeadlineSeconds: {{ seconds }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: {{ web_rollout_image | to_json }}
"""
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": KIND},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Web", "plural": "webs", "singular": "web", "listKind": "WebList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def pattern(heading: str) -> list[str]:
    """Return the blocks of code below a heading of the page."""
    page = (REPOSITORY / "docs" / "good-role.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def write(project: Path) -> None:
    """Write a project with the text of the page."""
    watch, variables, metadata = pattern("Return to the last good image")
    files = {
        "watches.yaml": WATCH + watch,
        "roles/web/defaults/main.yml": 'web_image: "{{ image }}"\n',
        "roles/web/vars/main.yml": variables,
        "roles/web/tasks/main.yml": TASKS,
        "roles/web/templates/deployment.yaml.j2": TEMPLATE.replace("METADATA\n", metadata),
    }
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def web(image: str, seconds: int = 600) -> Json:
    """Return the resource; `seconds` is the time that an image has to become ready."""
    body = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "web"}}
    return {**body, "spec": {"image": image, "seconds": seconds}}


def test_the_pattern_returns_to_the_last_good_image(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """An image whose Pods do not become ready is replaced, until the resource has another one."""
    write(project)
    kubectl.apply(CRD)
    kubectl.wait_for_kinds(KIND)

    def status() -> tuple[str | None, str | None, str]:
        """Return last good image, RolledBack, and the image of the Deployment."""
        found = (kubectl.get(KIND, "web") or {}).get("status", {})
        rolled_back = {c["type"]: c["status"] for c in found.get("conditions", [])}
        spec = (kubectl.get("deployment", "web") or {}).get("spec", {})
        (container,) = spec.get("template", {}).get("spec", {}).get("containers", [{}])
        return found.get("lastGoodImage"), rolled_back.get("RolledBack"), container.get("image", "")

    def until(*expected: str, ready: str = "") -> None:
        """Wait for a status, with the Pods of an image ready, as kubelets would have them."""

        def found() -> tuple[str | None, str | None, str]:
            for pod in kubectl.list("pods", "app=web"):
                if pod["spec"]["containers"][0]["image"] == ready:
                    set_ready(kubectl, pod["metadata"]["name"], "True")
            return status()

        eventually(found, expected.__eq__, details=operator.log)

    operator.start()
    try:
        kubectl.apply(web("web:good"))
        until("web:good", "False", "web:good", ready="web:good")
        kubectl.apply(web("web:bad", seconds=3))
        until("web:good", "True", "web:good")
        kubectl.apply(web("web:better"))
        until("web:better", "False", "web:better", ready="web:better")
    finally:
        operator.kill()
        kubectl("delete", "crd", KIND)
