"""A real cluster with a node, the nginx operator's CRD, and an operator process for each test."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster, pack
from tests.support.examples import FOLDER
from tests.support.image_building import Builder
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY, Operator, copy_project

RELEASES = {"0.0.1": REPOSITORY / "releases" / "0.0.1", "0.0.2": REPOSITORY}
"""The nginx operator's versions, and where each has its watches.yaml and its roles."""
EXAMPLE = "eru"
"""The example of which there is an image."""
NGINX_SPEC = REPOSITORY / "demo" / "nginx-image.yaml"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start a cluster with a node of its own, away again after the tests."""
    cluster = Cluster(f"e2e-{secrets.token_hex(3)}")
    cluster.up(install_packages=True)
    try:
        cluster.exec(["kubectl", "apply", "--filename", str(REPOSITORY / "crds")])
        Kubectl(cluster.bin / "kubectl", "default").wait_for_kinds(KIND)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def nginx_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Pack Debian's nginx into an image and give it to the node; return its name."""
    archive = tmp_path_factory.mktemp("image") / "nginx.tar"
    pack(NGINX_SPEC, archive)
    return cluster.load(archive)[0]


@pytest.fixture(scope="session")
def operator_images(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build images of operators and give them to the node.

    Return those of the nginx operator by version, and that of an example by its name.
    """
    builder = Builder(tmp_path_factory.mktemp("images"))
    builder.provide_base()
    images = builder.build_operators(REPOSITORY, RELEASES)
    images[EXAMPLE] = builder.build_example(FOLDER / EXAMPLE)
    for version, image in images.items():
        archive = builder.save(image, builder.folder / f"{version}.tar")
        cluster.load(archive)
        archive.unlink()
    shutil.rmtree(builder.folder / "store")
    return images


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    """Make a namespace for the test and a kubectl for it."""
    return Kubectl.in_new_namespace(cluster, "e2e")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the nginx operator's project that the test may edit."""
    return copy_project(tmp_path / "project")


@pytest.fixture
def operator(
    cluster: Cluster, kubectl: Kubectl, nginx_image: str, project: Path, tmp_path: Path
) -> Iterator[Operator]:
    """Give an operator that watches the test's namespace; it is not started yet."""
    operator = Operator(
        project,
        cluster.kubeconfig,
        kubectl.namespace,
        tmp_path,
        {"RELATED_IMAGE_NGINX": nginx_image},
    )
    try:
        yield operator
    finally:
        operator.kill()
