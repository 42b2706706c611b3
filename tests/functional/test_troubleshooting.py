"""The faults of docs/troubleshooting.md: each is caused, and has the message of the page."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

ECHO = {"apiVersion": "test.example.com/v1", "kind": "Echo", "metadata": {"name": "a"}}
GHOST = "- {group: test.example.com, version: v1, kind: Ghost, role: echo}\n"


def test_the_role_is_not_in_the_image(operator: Operator) -> None:
    """The operator exits at once, and lists searched paths and missing files of the image."""
    shutil.rmtree(operator.project / "roles")
    operator.start(wait=False)
    assert operator.wait() == 1
    assert f"role: echo was not found; searched {operator.project}/roles/echo" in operator.log()
    assert "for an image, copy it there in the Dockerfile" in operator.log()


def test_a_port_is_taken(operator: Operator) -> None:
    """The operator ends at once, and names the flag, and a port to try."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        operator.start(f"--metrics-bind-address={address}", wait=False)
        assert operator.wait() == 1
    assert f"--metrics-bind-address={address}: cannot listen (" in operator.log()
    assert "such as --metrics-bind-address=127.0.0.1:" in operator.log()


def test_a_definition_is_missing_and_a_role_has_a_syntax_error(
    operator: Operator, kubectl: Kubectl
) -> None:
    """Probe and log name the kind; the resource of the other names file, line and mistake."""
    with (operator.project / "watches.yaml").open("a") as watches:
        watches.write(GHOST)
    tasks = operator.project / "roles" / "echo" / "tasks" / "main.yml"
    tasks.write_text("- name: Say it\n  kubernetes.core.k8s: {\n")
    operator.start(wait=False)
    eventually(lambda: operator.lines("Waiting for a watched kind"), details=operator.log)
    eventually(lambda: operator.probe("readyz"), lambda code: code == 500)
    kubectl.apply(ECHO)
    failure = eventually(
        lambda: _condition(kubectl, "Failure"),
        lambda c: c["status"] == "True",
        details=operator.log,
    )
    assert failure["message"].startswith("YAML parsing failed: ")
    assert f"{tasks}:3:1" in failure["message"]
    (waiting,) = operator.lines("Waiting for a watched kind")
    assert (
        "no kind Ghost in test.example.com/v1: its CRD is missing; install it" in waiting["error"]
    )


def test_a_right_is_missing(kubectl: Kubectl, project: Path, tmp_path: Path) -> None:
    """The log has the account, the missing permission and the namespace."""
    kubectl("create", "serviceaccount", "nobody")
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))
    token = kubectl.token("nobody")
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = tmp_path / "nobody"
    kubeconfig.write_text(json.dumps(config))
    operator = Operator(project, kubeconfig, kubectl.namespace, tmp_path, {})
    operator.start(wait=False)
    try:
        who = f"system:serviceaccount:{kubectl.namespace}:nobody"
        message = f'User \\"{who}\\" cannot list resource \\"echoes\\" in API group'
        eventually(operator.log, lambda log: message in log)
        assert operator.probe("readyz") != 200
    finally:
        operator.kill()


def test_the_log_names_the_current_leader(
    make_operator: Callable[[str], Operator], kubectl: Kubectl
) -> None:
    """The log names the one that leads."""
    kubectl.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "nginx-operator"},
            "spec": {
                "holderIdentity": "the-other-pod",
                "leaseDurationSeconds": 3600,
                "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        }
    )
    operator = make_operator("waiting").start(
        "--leader-elect",
        "--leader-election-id=nginx-operator",
        f"--leader-election-namespace={kubectl.namespace}",
        wait=False,
    )
    (waiting,) = eventually(lambda: operator.lines("Waiting for the leader to release the lease"))
    assert (waiting["lease"], waiting["leader"]) == ("nginx-operator", "the-other-pod")
    assert operator.terminate() == 0


def test_a_missing_conversion_webhook_is_reported(operator: Operator, kubectl: Kubectl) -> None:
    """Requests that need a conversion fail with a message that the webhook is unavailable."""
    kubectl.apply(_twin())
    kubectl.wait_for_kinds("twins.test.example.com")
    body = {"apiVersion": "test.example.com/v2", "kind": "Twin", "metadata": {"name": "a"}}
    kubectl.apply(body)
    message = "conversion webhook for test.example.com/v2, Kind=Twin failed: Post"
    done = kubectl.run("get", "twins.v1.test.example.com", "a")
    assert message in done.stderr
    with (operator.project / "watches.yaml").open("a") as watches:
        watches.write(GHOST.replace("Ghost", "Twin"))
    operator.start(wait=False)
    eventually(operator.log, lambda log: message in log)
    assert operator.probe("readyz") != 200
    kubectl("delete", "crd", "twins.test.example.com")


def _twin() -> Json:
    """Return a kind of two versions whose webhook has a port without a server."""
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v2",
            "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            },
        }
        for name in ("v1", "v2")
    ]
    webhook = {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/convert"},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "twins.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Twin", "plural": "twins", "singular": "twin"},
            "conversion": {"strategy": "Webhook", "webhook": webhook},
            "versions": versions,
        },
    }


def _condition(kubectl: Kubectl, type_: str) -> Json:
    found = kubectl.get("echoes.test.example.com", "a") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == type_), {"status": "Unknown"})
