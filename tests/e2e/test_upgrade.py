"""From the operator 0.0.1 to 0.0.2 and back, while a client keeps fetching from nginx."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster, pack
from tests.conftest import OPENSHIFT_PLUGIN
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import KIND, World, nginx
from tests.support.operator import REPOSITORY, Operator
from tests.support.visitor import Visitor
from tests.support.waiting import eventually

GROUP = "operator.example.com"
CRD = f"crd/{KIND}"
PORTS = [
    {"containerPort": 8080, "name": "nginx", "protocol": "TCP"},
    {"containerPort": 8443, "name": "more", "protocol": "TCP"},
]
OLDER = REPOSITORY / "releases" / "0.0.1"
NGINX_SPEC = REPOSITORY / "demo" / "nginx-image.yaml"


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a cluster of the test's own: definitions of two versions come and go in it.

    Its node has the images that the roles of both versions name.
    """
    cluster = Cluster(f"upgrade-{secrets.token_hex(3)}")
    cluster.up(install_packages=True, admission_plugins=(OPENSHIFT_PLUGIN,))
    scratch = tmp_path_factory.mktemp("images")
    try:
        for project in (OLDER, REPOSITORY):
            spec = yaml.safe_load(NGINX_SPEC.read_text()) | {"tag": image_of(project)}
            described = scratch / "image.yaml"
            described.write_text(yaml.safe_dump(spec))
            pack(described, scratch / "image.tar")
            cluster.load(scratch / "image.tar")
        yield cluster
    finally:
        cluster.down()


def image_of(project: Path) -> str:
    """Return the image that the role of a version pins, by its name on a node."""
    defaults = yaml.safe_load((project / "roles" / "nginx" / "defaults" / "main.yml").read_text())
    _, _, pinned = str(defaults["nginx_image"]).partition(" or ")
    name = pinned.strip(" '}")
    return name if "/" in name else f"docker.io/library/{name}"


@pytest.fixture
def operators(own_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Operator, Operator]]:
    """Give the operators of both versions; none is started yet."""
    made = []
    for project, name in ((OLDER, "older"), (REPOSITORY, "newer")):
        scratch = tmp_path / name
        scratch.mkdir()
        made.append(Operator(project, own_cluster.kubeconfig, "default", scratch, {}))
    try:
        yield made[0], made[1]
    finally:
        for operator in made:
            operator.kill()


def test_versions_change_without_a_failed_request(
    own_cluster: Cluster, operators: tuple[Operator, Operator]
) -> None:
    """Upgrade, use of the new version, and rollback: nginx answers all the time."""
    older, newer = operators
    kubectl = Kubectl(own_cluster.bin / "kubectl", "default")
    world = World(kubectl, older)
    define(kubectl, OLDER)
    older.start()
    kubectl.apply(nginx(version="v1alpha1", replicas=2))
    world.wait_reconciled()
    world.wait_available(2)
    service = kubectl.get("service", "web")
    assert service is not None
    with Visitor(f"http://{service['spec']['clusterIP']}:8080/").visiting() as visitor:
        older.terminate()
        define(kubectl, REPOSITORY)
        world.operator = newer.start()
        wait_for_operand(world, REPOSITORY)
        assert in_version(kubectl, "v1alpha1")["spec"] == {"replicas": 2}
        kubectl.merge(f"nginxoperators.v1alpha2.{GROUP}", "web", {"spec": {"ports": PORTS}})
        wait_for_operand(world, REPOSITORY)
        assert in_version(kubectl, "v1alpha1")["spec"] == {"replicas": 2, "port": 8080}

        store_as(kubectl, "v1alpha1")
        newer.terminate()
        define(kubectl, OLDER)
        world.operator = older.start()
        wait_for_operand(world, OLDER)
        assert in_version(kubectl, "v1alpha1")["spec"] == {"replicas": 2, "port": 8080}

        older.terminate()
        define(kubectl, REPOSITORY)
        world.operator = newer.start()
        wait_for_operand(world, REPOSITORY)
        assert in_version(kubectl, "v1alpha2")["spec"] == {"replicas": 2, "ports": PORTS}
        world.until(lambda: visitor.answers > 100)
    assert visitor.failures == [], kubectl("get", "events", "--sort-by=.lastTimestamp")


def define(kubectl: Kubectl, project: Path) -> None:
    """Install a version's definition, as its user does."""
    kubectl("apply", f"--filename={project / 'crds'}")
    kubectl.wait_for_kinds(KIND)


def in_version(kubectl: Kubectl, version: str) -> Json:
    """Return the resource as a version of the API shows it."""
    found = kubectl.get(f"nginxoperators.{version}.{GROUP}", "web")
    assert found is not None
    return found


def wait_for_operand(world: World, project: Path) -> None:
    """Wait until nginx is what this version of the role makes of the newest spec."""
    expected = image_of(project).rpartition("/")[2]

    def image(body: Json) -> str:
        named: str = body["spec"]["template"]["spec"]["containers"][0]["image"]
        return named.rpartition("/")[2]

    world.wait_reconciled()
    world.until(
        lambda: world.kubectl.get("deployment", "web"),
        lambda body: image(body) == expected,
    )
    world.wait_available(2)


def store_as(kubectl: Kubectl, version: str) -> None:
    """Store everything in a version, so that the others can go."""
    found = kubectl.get("crd", KIND)
    assert found is not None
    versions = [one | {"storage": one["name"] == version} for one in found["spec"]["versions"]]
    kubectl.merge("crd", KIND, {"spec": {"versions": versions}})
    # While the API server replaces the handlers of the kind, it is unavailable.
    rewrite = ("patch", KIND, "web", "--type=merge", "--patch={}")
    eventually(lambda: kubectl.run(*rewrite), lambda done: done.returncode == 0)
    stored = f'{{"status": {{"storedVersions": ["{version}"]}}}}'
    kubectl("patch", CRD, "--subresource=status", "--type=merge", f"--patch={stored}")
