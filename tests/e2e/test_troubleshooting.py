"""Faults of docs/troubleshooting.md that need a node."""

from __future__ import annotations

from pathlib import Path

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.nginx import World, nginx
from tests.support.operator import Operator

NOWHERE = "registry.invalid/nginx:nope"


def test_the_image_of_nginx_cannot_be_pulled(
    cluster: Cluster, kubectl: Kubectl, nginx_image: str, project: Path, tmp_path: Path
) -> None:
    """The resource names the reason, the Pod and the image; with a good image all is well."""

    def operator(name: str, image: str) -> Operator:
        scratch = tmp_path / name
        scratch.mkdir()
        environment = {"RELATED_IMAGE_NGINX": image}
        made = Operator(project, cluster.kubeconfig, kubectl.namespace, scratch, environment)
        return made.start()

    bad = operator("bad", NOWHERE)
    try:
        world = World(kubectl, bad)
        kubectl.apply(nginx())
        condition = world.until(
            lambda: world.condition("Available"), lambda c: c.get("reason") == "ImagePullFailed"
        )
        assert condition["status"] == "False"
        assert "Deployment web is not ready" in condition["message"]
        assert NOWHERE in condition["message"]
        assert world.condition("OperatorDegraded")["status"] == "False"
    finally:
        bad.terminate()
    good = operator("good", nginx_image)
    try:
        world = World(kubectl, good)
        available = world.until(
            lambda: world.condition("Available"), lambda c: c.get("status") == "True"
        )
        assert available["reason"] == "DependentsReady"
        world.until(world.fetch, (200).__eq__)
    finally:
        good.kill()
