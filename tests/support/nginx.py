"""The nginx operator's resources, and the objects and conditions that users see."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator
from tests.support.waiting import eventually

KIND = "nginxoperators.operator.example.com"
V1ALPHA1 = "nginxoperators.v1alpha1.operator.example.com"


def nginx(name: str = "web", *, version: str = "v1alpha2", **spec: Any) -> Json:
    """Return an NginxOperator; one of v1alpha1 can only be applied where something converts it."""
    return {
        "apiVersion": f"operator.example.com/{version}",
        "kind": "NginxOperator",
        "metadata": {"name": name},
        "spec": spec,
    }


def installed_with(component: str, kubectl: Kubectl, scratch: Path) -> list[Json]:
    """Return the objects of config/default with a component that its comments describe."""
    for part in ("config", "crds"):
        shutil.copytree(REPOSITORY / part, scratch / part)
    default = scratch / "config" / "default"
    with (default / "kustomization.yaml").open("a") as kustomization:
        kustomization.write(f"components: [../{component}]\n")
    return list(yaml.safe_load_all(kubectl("kustomize", str(default))))


class World:
    """Objects and conditions that users see."""

    def __init__(self, kubectl: Kubectl, operator: Operator) -> None:
        self.kubectl, self.operator = kubectl, operator

    def condition(self, type_: str, name: str = "web") -> Json:
        found = self.kubectl.get(KIND, name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == type_), {})

    def wait_reconciled(self, name: str = "web") -> None:
        """Wait until the operator has written the objects of the newest spec.

        It is not `Successful` while the role requeues, that is until the Pods serve.
        """

        def is_done(body: Json | None) -> bool:
            degraded, available = (
                self.condition(type_, name) for type_ in ("OperatorDegraded", "Available")
            )
            return (
                body is not None
                and degraded.get("observedGeneration") == body["metadata"]["generation"]
                and degraded["status"] == "False"
                and (
                    self.condition("Successful", name).get("status") == "True"
                    or available.get("status") == "False"
                )
            )

        self.until(lambda: self.kubectl.get(KIND, name), is_done)

    def until(self, look: Any, check: Any = bool) -> Any:
        return eventually(look, check, details=self.operator.log)

    def wait_available(self, replicas: int, name: str = "web") -> None:
        """Wait until exactly this many Pods of the newest template serve."""

        def is_available(body: Json | None) -> bool:
            if body is None or body["spec"]["replicas"] != replicas:
                return False
            status = body["status"]
            counts = [
                status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")
            ]
            current = status.get("observedGeneration") == body["metadata"]["generation"]
            return current and counts == [replicas] * 3

        self.until(lambda: self.kubectl.get("deployment", name), is_available)

    def wait_reported_available(self, name: str = "web") -> None:
        """Wait until the resource is Available: nothing is left to write then."""

        def is_reported(body: Json | None) -> bool:
            available = self.condition("Available", name)
            return (
                body is not None
                and available.get("status") == "True"
                and available.get("observedGeneration") == body["metadata"]["generation"]
                and self.condition("Successful", name).get("status") == "True"
            )

        self.until(lambda: self.kubectl.get(KIND, name), is_reported)

    def fetch(self, name: str = "web", index: int = 0) -> int:
        """Fetch through a port of the Service; return the HTTP status, 0 without an answer."""
        service = self.kubectl.get("service", name)
        if service is None:
            return 0
        port = service["spec"]["ports"][index]["port"]
        try:
            url = f"http://{service['spec']['clusterIP']}:{port}/"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def pods(self, name: str = "web") -> set[str]:
        """Return the uids of the Pods that are not on their way out."""
        found = self.kubectl.list("pods", f"app.kubernetes.io/instance={name}")
        return {p["metadata"]["uid"] for p in found if "deletionTimestamp" not in p["metadata"]}

    def versions(self, name: str = "web") -> tuple[str, ...]:
        bodies = [self.kubectl.get(k, name) for k in (KIND, "deployment", "service")]
        return tuple(body["metadata"]["resourceVersion"] for body in bodies if body)
