"""The molecule scenarios of a new project delete and change only what they have created."""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.molecule import ForeignResources, Molecule, assert_fails_with
from tests.support.scaffold import create_api, init

pytestmark = pytest.mark.xdist_group("molecule")
RUNNING = {"OPERATOR_IMAGE": "none"}
IMAGE = {"OPERATOR_IMAGE": "localhost/cache-operator:test"}


@dataclass(frozen=True)
class Case:
    """A project with the kind Memcached of a group of its own, and its molecule."""

    molecule: Molecule
    kubectl: Kubectl
    group: str

    @property
    def crd(self) -> str:
        """The name of the CRD."""
        return f"memcacheds.{self.group}"

    def install(self) -> None:
        """Install the CRD as `make install` does."""
        self.kubectl("apply", f"--kustomize={self.molecule.project}/config/crd")
        self.kubectl.wait_for_kinds(self.crd)

    def foreign(self) -> ForeignResources:
        """Create a resource in another namespace, with a dependent."""
        foreign = ForeignResources(self.kubectl, self.crd)
        foreign.create(f"{self.group}/v1alpha1", "Memcached", "theirs")
        return foreign


@pytest.fixture
def case(control_plane_cluster: Cluster, tmp_path: Path) -> Case:
    """Return a project whose test namespace does not exist."""
    root, domain = tmp_path / "cache-operator", f"d{secrets.token_hex(4)}.test"
    init(root, f"--domain={domain}")
    create_api(root, "Memcached", "--generate-role")
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", f"molecule-{secrets.token_hex(4)}")
    molecule = Molecule(root, kubectl, control_plane_cluster.kubeconfig, tmp_path / "molecule")
    return Case(molecule, kubectl, f"cache.{domain}")


def test_without_an_image_nothing_is_touched(case: Case) -> None:
    """`make test` without OPERATOR_IMAGE fails before it deletes anything, and gives a hint."""
    case.install()
    foreign = case.foreign()
    before = foreign.state()
    done = case.molecule.run("make", "test")
    assert_fails_with(done, "OPERATOR_IMAGE is not set; nothing was changed", "make docker-build")
    assert foreign.state() == before


@pytest.mark.slow
def test_an_existing_crd_is_kept(case: Case) -> None:
    """The steps around the test use a CRD that is there, and leave its resources alone."""
    case.install()
    foreign = case.foreign()
    before = foreign.state()
    case.molecule.passes("destroy", "converge", **RUNNING)
    assert case.kubectl.get("namespace", case.kubectl.namespace) is not None
    case.molecule.passes("destroy", **RUNNING)
    assert case.kubectl.get("namespace", case.kubectl.namespace) is None
    assert foreign.state() == before


@pytest.mark.slow
def test_a_crd_of_the_test_is_kept_for_resources_of_others(case: Case) -> None:
    """Destroy refuses, names the resources and a hint; with it the CRD and they stay."""
    case.molecule.passes("converge", **RUNNING)
    foreign = case.foreign()
    before = foreign.state()
    keep = f"kubectl annotate crd {case.crd} operator-runner.dev/molecule-"
    case.molecule.refuses("destroy", f"{foreign.namespace}/theirs", keep, **RUNNING)
    assert foreign.state() == before
    case.kubectl(*keep.split()[1:])
    before = foreign.state()
    case.molecule.passes("destroy", **RUNNING)
    assert foreign.state() == before


@pytest.mark.slow
def test_a_namespace_of_others_is_refused(case: Case) -> None:
    """No step creates or deletes anything in a namespace that was there before."""
    case.kubectl("create", "namespace", case.kubectl.namespace)
    case.kubectl("create", "configmap", "theirs")
    for step in ("destroy", "converge"):
        case.molecule.refuses(
            step,
            f"did not create: Namespace {case.kubectl.namespace}",
            "Set TEST_OPERATOR_NAMESPACE",
            **RUNNING,
        )
    assert case.kubectl.get("configmap", "theirs") is not None
    assert case.kubectl.get("crd", case.crd) is None


@pytest.mark.slow
def test_cluster_scoped_objects_of_others_are_refused(case: Case) -> None:
    """A ClusterRole with the name of the operator's is neither overwritten nor deleted."""
    role = "osdk-metrics-reader"
    case.kubectl("create", "clusterrole", role, "--verb=get", "--resource=pods")
    try:
        case.molecule.refuses("destroy", f"did not create: ClusterRole {role}", **IMAGE)
        found = case.kubectl.get("clusterrole", role)
        assert found is not None
        assert found["rules"][0]["resources"] == ["pods"]
        assert case.kubectl.get("crd", case.crd) is None
    finally:
        case.kubectl("delete", "clusterrole", role)


@pytest.mark.slow
def test_a_crd_of_others_without_the_version_is_refused(case: Case) -> None:
    """The message names the versions and `make install`, which updates the CRD."""
    case.install()
    file = case.molecule.project / "config/crd/bases" / f"{case.group}_memcacheds.yaml"
    file.write_text(file.read_text().replace("name: v1alpha1", "name: v1beta1"))
    case.molecule.refuses(
        "converge", f"The CRD {case.crd}", "serves v1alpha1 and not v1beta1", "make install",
        **RUNNING,
    )  # fmt: skip


@pytest.mark.slow
def test_resources_of_a_cluster_scoped_kind_are_refused(case: Case) -> None:
    """The test's operator would reconcile them, since no namespace separates them."""
    file = case.molecule.project / "config/crd/bases" / f"{case.group}_memcacheds.yaml"
    file.write_text(file.read_text().replace("scope: Namespaced", "scope: Cluster"))
    case.install()
    body = f"apiVersion: {case.group}/v1alpha1\nkind: Memcached\nmetadata: {{name: theirs}}\n"
    case.kubectl("create", "--filename=-", input_=body)
    case.molecule.refuses("destroy", "/theirs", "cluster-scoped", **RUNNING)
    assert case.kubectl.get(case.crd, "theirs") is not None


@pytest.mark.slow
def test_an_existing_kind_cluster_is_kept(case: Case, tmp_path: Path) -> None:
    """`-s kind` neither uses nor deletes a cluster with its name; create has a hint."""
    programs = tmp_path / "programs"
    programs.mkdir()
    kind = programs / "kind"
    kind.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n[ "$*" != "get clusters" ] || echo theirs\n'
    )
    kind.chmod(0o755)
    path = os.pathsep.join([str(programs), case.molecule.path])

    def scenario(step: str, cluster: str) -> subprocess.CompletedProcess[str]:
        command = ("molecule", step, "--scenario-name=kind")
        return case.molecule.run(*command, PATH=path, KIND_CLUSTER=cluster)

    assert scenario("destroy", "theirs").returncode == 0
    message = "kind has a cluster theirs that this test did not create"
    assert_fails_with(scenario("create", "theirs"), message)
    assert (tmp_path / "calls").read_text() == "get clusters\n"
    # It ends with prepare, for which there is no cluster.
    scenario("create", "own")
    assert scenario("destroy", "own").returncode == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    changes = [call for call in calls if " cluster " in call]
    assert changes == ["create cluster --name=own --wait=5m", "delete cluster --name=own"]
