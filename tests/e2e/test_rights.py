"""The operator works with the rights that config/rbac grants, and needs no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.nginx import World, nginx
from tests.support.operator import REPOSITORY, Operator

SYSTEM = "nginx-operator-system"
ACCOUNT = "nginx-operator-controller-manager"


@pytest.fixture
def restricted(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Grant what config/ grants, and give the kubeconfig of its service account."""
    system = Kubectl(cluster.bin / "kubectl", SYSTEM)
    system("apply", f"--kustomize={REPOSITORY / 'config' / 'default'}")
    # The operator runs here as a process, so the manager's own Pod is not wanted.
    system("scale", "deployment", ACCOUNT, "--replicas=0")
    token = system("create", "token", ACCOUNT).strip()
    config = json.loads(system("config", "view", "--raw", "--minify", "--output=json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    kubeconfig = tmp_path / "restricted"
    kubeconfig.write_text(json.dumps(config))
    yield kubeconfig
    system("delete", "namespace", SYSTEM, "--wait=false")


def test_the_granted_rights_are_enough(
    restricted: Path, kubectl: Kubectl, nginx_image: str, project: Path, tmp_path: Path
) -> None:
    """Leading, watching, running, repairing and reporting work; nothing is refused on the way."""
    operator = Operator(project, restricted, "", tmp_path, {"RELATED_IMAGE_NGINX": nginx_image})
    operator.start(
        "--leader-elect",
        "--leader-election-id=nginx-operator",
        f"--leader-election-namespace={SYSTEM}",
    )
    try:
        world = World(kubectl, operator)
        kubectl.apply(nginx())
        world.wait_reconciled()
        world.wait_available(1)
        kubectl("delete", "deployment", "web")
        world.wait_available(1)
        world.until(lambda: operator.metric("reconciles_total"), lambda count: count >= 2)
        assert kubectl.list("events.v1.events.k8s.io")
        assert "forbidden" not in operator.log().lower()
    finally:
        operator.kill()
