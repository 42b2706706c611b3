"""A new project as it is created: its scenario passes, also beside resources of others."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Json, Kubectl
from tests.support.molecule import ForeignResources, Molecule
from tests.support.operator import Operator
from tests.support.scaffold import create_api, init
from tests.support.waiting import eventually

GROUP = "cache.fresh.test"
CRDS = (f"memcacheds.{GROUP}", f"proxies.{GROUP}")
CLUSTER_SCOPED = "namespaces,crds,clusterroles,clusterrolebindings"


@pytest.fixture
def kubectl(control_plane_cluster: Cluster) -> Kubectl:
    """Kubectl for the namespace of the test, which does not exist: the scenario creates it."""
    name = f"molecule-{secrets.token_hex(4)}"
    return Kubectl(control_plane_cluster.bin / "kubectl", name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with one kind of a role and one of a playbook that imports a role."""
    root = tmp_path / "fresh-operator"
    init(root, "--domain=fresh.test")
    create_api(root, "Memcached", "--generate-role")
    create_api(root, "Proxy", "--generate-role", "--generate-playbook")
    # As `make run` has it.
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", str(root / "roles"))
    return root


@pytest.fixture
def molecule(
    control_plane_cluster: Cluster, project: Path, kubectl: Kubectl, tmp_path: Path
) -> Molecule:
    """Return the molecule of the project."""
    return Molecule(project, kubectl, control_plane_cluster.kubeconfig, tmp_path / "molecule")


@pytest.mark.slow
def test_the_scenario_passes_with_an_operator_that_runs(
    molecule: Molecule, kubectl: Kubectl, make_operator: Callable[[str], Operator]
) -> None:
    """All steps of `molecule test` pass; what they have created is deleted."""
    before = names(kubectl)
    operator = make_operator("operator").start(wait=False)
    molecule.passes("test", OPERATOR_IMAGE="none")
    assert reconciled(operator) == {
        (kubectl.namespace, f"{n}-sample") for n in ("memcached", "proxy")
    }
    assert names(kubectl) == before


@pytest.mark.slow
def test_the_scenario_passes_beside_foreign_objects(
    molecule: Molecule, kubectl: Kubectl, control_plane: Path, tmp_path: Path
) -> None:
    """With an image and resources of the same kinds elsewhere: these stay as they are."""
    kubectl("apply", f"--kustomize={molecule.project}/config/crd")
    kubectl.wait_for_kinds(*CRDS)
    foreign = ForeignResources(kubectl, CRDS[0])
    foreign.create(f"{GROUP}/v1alpha1", "Memcached", "theirs")
    objects, state = names(kubectl), foreign.state()
    node = Node(kubectl, molecule.project, control_plane, tmp_path)
    node.start()
    try:
        molecule.passes("test", OPERATOR_IMAGE="localhost/fresh-operator:test")
        assert node.operator is not None
        assert {namespace for namespace, _ in reconciled(node.operator)} == {kubectl.namespace}
        assert (names(kubectl), foreign.state()) == (objects, state)
    finally:
        node.stop()
        kubectl("delete", "crd", *CRDS)


def names(kubectl: Kubectl) -> set[str]:
    """Return the names of cluster-scoped objects, namespaces included.

    Those that are being deleted are left out: other tests on the control plane may have deleted
    them.
    """
    return {
        f"{one['kind']}/{one['metadata']['name']}"
        for one in kubectl.list(CLUSTER_SCOPED)
        if "deletionTimestamp" not in one["metadata"]
    }


def reconciled(operator: Operator) -> set[tuple[str, str]]:
    """Return namespace and name of the resources that the operator has reconciled."""
    return {(line["namespace"], line["name"]) for line in operator.lines("Reconciled")}


class Node(threading.Thread):
    """Plays the node of a cluster without nodes.

    It runs the operator of the first Pod with the environment of its container, and marks the Pod
    as ready. `operator` is None until then.
    """

    def __init__(self, kubectl: Kubectl, project: Path, kubeconfig: Path, scratch: Path) -> None:
        """Wait for the Pod in kubectl's namespace."""
        super().__init__()
        self.operator: Operator | None = None
        self._kubectl = kubectl
        self._project, self._kubeconfig, self._scratch = project, kubeconfig, scratch
        self._over = threading.Event()

    def run(self) -> None:
        """Start the operator once there is a Pod."""
        pod = eventually(lambda: self._over.is_set() or self._pod(), seconds=540)
        if not isinstance(pod, dict):
            return
        (container,) = pod["spec"]["containers"]
        environment = {one["name"]: one["value"] for one in container["env"]}
        # Without WATCH_NAMESPACE in the manifests it would watch all namespaces.
        self.operator = Operator(
            self._project, self._kubeconfig, "", self._scratch, environment
        ).start()
        ready = {"type": "Ready", "status": "True"}
        self._kubectl(
            "patch",
            "pod",
            pod["metadata"]["name"],
            "--subresource=status",
            "--type=merge",
            f"--patch={json.dumps({'status': {'phase': 'Running', 'conditions': [ready]}})}",
        )

    def stop(self) -> None:
        """End the operator."""
        self._over.set()
        self.join()
        if self.operator is not None:
            self.operator.kill()

    def _pod(self) -> Json | None:
        return next(iter(self._kubectl.list("pods")), None)
