"""The operator's image: built from the Dockerfiles, deployed by config/, with any user id."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND, V1ALPHA1, nginx
from tests.support.operator import REPOSITORY
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("images")

SYSTEM = "nginx-operator-system"
MANAGER = "deployment/nginx-operator-controller-manager"
USER_ID = 1000770000
"""A user id that does not exist in the image, as on OpenShift."""
APART = """
from pathlib import Path
from operator_runner.ansible.sandbox.isolation_probe import probe_isolation
from operator_runner.ansible.sandbox.isolation import Sandbox

# Where people look for the artifacts of a run.
found = Path("/tmp/ansible-operator/runner").glob("*/*/*/*/web/artifacts/latest/stdout")
output = next(found)
print("readable" if output.read_text() else "empty")
work_dir = "/var/lib/operator-runner"
Sandbox(probe_isolation(Path(work_dir)).isolation, work_dir, ()).enter()
try:
    output.read_text()
except PermissionError:
    print("refused")
"""
"""Files that a run of another resource could read, by a program in the operator's container."""


@pytest.fixture(scope="session")
def operator_image(operator_images: dict[str, str]) -> str:
    """Give the image of the newest version."""
    return operator_images["0.0.2"]


@pytest.fixture
def deployed(
    cluster: Cluster, operator_image: str, nginx_image: str, tmp_path: Path
) -> Iterator[Kubectl]:
    """Deploy config/default with the images of this machine and an unused user id."""
    for part in ("config", "crds"):
        shutil.copytree(REPOSITORY / part, tmp_path / part)
    (tmp_path / "here").mkdir()
    name, _, tag = operator_image.rpartition(":")
    env = "/spec/template/spec/containers/0/env/0/value"
    (tmp_path / "here" / "kustomization.yaml").write_text(
        json.dumps(
            {
                "resources": ["../config/default"],
                "images": [{"name": "controller", "newName": name, "newTag": tag}],
                "patches": [
                    _patch({"op": "replace", "path": env, "value": nginx_image}),
                    _patch(
                        {
                            "op": "add",
                            "path": "/spec/template/spec/securityContext/runAsUser",
                            "value": USER_ID,
                        }
                    ),
                ],
            }
        )
    )
    system = Kubectl(cluster.bin / "kubectl", SYSTEM)
    system("apply", f"--kustomize={tmp_path / 'here'}")
    try:
        yield system
    finally:
        system("delete", "namespace", SYSTEM, "--wait=true")


def _patch(operation: dict[str, Any]) -> dict[str, Any]:
    return {"target": {"kind": "Deployment"}, "patch": json.dumps([operation])}


def test_the_image_runs_the_operator(deployed: Kubectl, cluster: Cluster, kubectl: Kubectl) -> None:
    """Not as root, with a read-only file system and the default seccomp profile, nginx comes up."""

    def details() -> str:
        return deployed.run("logs", MANAGER).stdout + deployed("describe", "pods")

    rollout = ("rollout", "status", MANAGER, "--timeout=1s")
    eventually(lambda: deployed.run(*rollout).returncode, (0).__eq__, seconds=240, details=details)
    # Converted through the Service, to whose Pods kube-proxy routes a moment after they are ready.
    body = json.dumps(nginx(version="v1alpha1", port=8081))
    applied = partial(kubectl.run, "apply", "--filename=-", input_=body)
    eventually(applied, lambda done: done.returncode == 0, details=details)

    def is_well() -> bool:
        found = kubectl.get(KIND, "web") or {}
        conditions = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}
        return conditions.get("Successful") == "True"

    eventually(is_well, seconds=180, details=details)
    kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    _converts_through_its_service(deployed, kubectl)
    _previews_in_its_pod(deployed, cluster, kubectl)
    status = deployed("exec", MANAGER, "--", "cat", "/proc/1/status").splitlines()
    fields = dict(line.split(":", 1) for line in status)
    assert fields["Uid"].split() == [str(USER_ID)] * 4
    assert fields["Gid"].split() == ["0"] * 4
    assert fields["Seccomp"].strip() == "2"
    assert int(fields["CapEff"], 16) == 0
    log = deployed("logs", "--selector=control-plane=controller-manager", "--tail=-1")
    assert "cold" not in log.lower(), log
    assert "Traceback" not in log, log
    assert "Run isolation is" not in log, log
    python = "/opt/operator-runner/bin/python"
    # The replica that leads has the artifacts.
    holder = "jsonpath={.spec.holderIdentity}"

    def look() -> list[str]:
        leader, _, _ = deployed("get", "lease/nginx-operator", "--output", holder).partition("_")
        return deployed.run("exec", leader, "--", python, "-c", APART).stdout.split()

    # A run that begins has an empty output.
    eventually(look, ["readable", "refused"].__eq__, details=details)
    # Programs that Dockerfiles of projects, and users in the container, call.
    for command in (
        *("ansible-operator version", "ansible-galaxy --version", "pip3 --version"),
        *("operator-runner --help", "operator-runner why --help"),
    ):
        deployed("exec", MANAGER, "--", *command.split())
    # Paths of ansible-operator's image that inventories and tests of existing projects use.
    for command in ("bash -c", "/usr/bin/python3 -c", "/usr/bin/python3.12 -c"):
        script = "curl --version" if "bash" in command else "import kubernetes, requests"
        deployed("exec", MANAGER, "--", *command.split(), script)
    assert deployed("exec", MANAGER, "--", "python3", "--version").startswith("Python 3.13.")
    listed = deployed("exec", MANAGER, "--", "ansible-galaxy", "collection", "list")
    assert "kubernetes.core" in listed
    assert "community." not in listed


def _converts_through_its_service(deployed: Kubectl, kubectl: Kubectl) -> None:
    """Assert that the API server comes by the Service and trusts the CA of the shared Secret."""
    found = kubectl.get(KIND, "web")
    assert found is not None
    assert found["spec"]["ports"] == [{"containerPort": 8081, "protocol": "TCP"}]
    lower = kubectl.get(V1ALPHA1, "web")
    assert lower is not None
    assert lower["spec"]["port"] == 8081
    crd = deployed.get("customresourcedefinition", KIND)
    secret = deployed.get("secret", "nginx-operator-webhook-service-certificate")
    assert crd is not None
    assert secret is not None
    config = crd["spec"]["conversion"]["webhook"]["clientConfig"]
    assert config["service"]["name"] == "nginx-operator-webhook-service"
    assert config["caBundle"] == secret["data"]["ca.crt"]


def _previews_in_its_pod(deployed: Kubectl, cluster: Cluster, kubectl: Kubectl) -> None:
    """Assert that `diff` in the Pod runs the role of the image, and prints what it would change."""

    def diff() -> subprocess.CompletedProcess[str]:
        place = f"--namespace={kubectl.namespace}"
        return deployed.run("exec", MANAGER, "--", "operator-runner", "diff", f"{KIND}/web", place)

    # The operator leaves the edit to the preview.
    cli = RunnerCli(cluster.kubeconfig, kubectl.namespace)
    cli("suspend", f"{KIND}/web", "--timeout=180s")
    same = diff()
    assert same.returncode == 0, same.stdout + same.stderr
    kubectl.merge(KIND, "web", {"spec": {"replicas": 2}})
    different = diff()
    assert different.returncode == 1, different.stdout + different.stderr
    assert "+  replicas: 2" in different.stdout
    kubectl.merge(KIND, "web", {"spec": {"replicas": 1}})
