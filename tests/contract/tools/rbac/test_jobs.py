"""The permissions and NetworkPolicies of Jobs, as `operator-runner rbac` writes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.command import run_command
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY


@pytest.fixture
def project(tmp_path: Path, namespace: str) -> Path:
    """Write a project whose runs are Jobs in a namespace of their own."""
    (tmp_path / "roles" / "web").mkdir(parents=True)
    (tmp_path / "config" / "rbac").mkdir(parents=True)
    (tmp_path / "config" / "manager").mkdir()
    job = {"image": "example.com/ee:1", "namespace": namespace}
    entry = {"group": "test.example.com", "version": "v1", "kind": "Echo", "role": "web"}
    (tmp_path / "watches.yaml").write_text(json.dumps([entry | {"execution": {"job": job}}]))
    (tmp_path / "crds").mkdir()
    shutil.copy(REPOSITORY / "tests" / "functional" / "project" / "crd.yaml", tmp_path / "crds")
    args = ["--jobs-service=web-jobs", "--jobs-port=9000"]
    env = [{"name": "WATCH_NAMESPACE", "value": namespace}]
    container = {"name": "manager", "image": "example.com/web:1", "args": args, "env": env}
    pod = {"serviceAccountName": "web-operator", "containers": [container]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        },
    }
    (tmp_path / "config" / "manager" / "manager.yaml").write_text(json.dumps(deployment))
    return tmp_path


def rbac(project: Path, *args: str) -> str:
    done = run_command(["rbac", *args], project)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_written_manifests_are_valid_and_sufficient(project: Path, kubectl: Kubectl) -> None:
    """The API server accepts them, the check finds nothing, and standard output has the same.

    Bindings have the ServiceAccount of the Deployment.
    """
    rbac(project, "--write=config/rbac")
    written: list[Json] = []
    for name in ("jobs_role.yaml", "jobs_network_policy.yaml"):
        path = project / "config" / "rbac" / name
        kubectl("apply", f"--filename={path}")
        written += yaml.safe_load_all(path.read_text())
    kinds = [body["kind"] for body in written]
    assert kinds == ["Role", "RoleBinding", "NetworkPolicy", "NetworkPolicy"]
    assert "The granted rules" in rbac(project, "--check=config/rbac", "--check=config/manager")
    printed = list(yaml.safe_load_all(rbac(project)))
    assert all(body in printed for body in written)
    (subject,) = written[1]["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", "web-operator")
    policy = kubectl.get("networkpolicy", "operator-jobs")
    assert policy is not None
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "web"}}
    assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 9000}]
