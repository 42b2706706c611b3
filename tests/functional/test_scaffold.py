"""A fresh project with nothing added to it: its own scenario passes, with the operator running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.scaffold import create_api, init

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"


class Scenario:
    """The playbooks of molecule/default with the inventory that molecule makes of its settings."""

    def __init__(self, project: Path, kubectl: Kubectl, kubeconfig: Path, scratch: Path) -> None:
        self.project = project
        self._environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "K8S_AUTH_KUBECONFIG": str(kubeconfig),
            "MOLECULE_PROJECT_DIRECTORY": str(project),
            "MOLECULE_EPHEMERAL_DIRECTORY": str(scratch),
            "PATH": f"{kubectl.program.parent}{os.pathsep}{os.environ['PATH']}",
        }
        given = {"TEST_OPERATOR_NAMESPACE": kubectl.namespace, "OPERATOR_IMAGE": "none"}
        settings = yaml.safe_load((project / "molecule/default/molecule.yml").read_text())
        inventory = settings["provisioner"]["inventory"]
        variables = {
            name: _expand(text, self._environment | given)
            for name, text in inventory["group_vars"]["all"].items()
        }
        self._inventory = scratch / "inventory.yml"
        everything = inventory["hosts"]["all"] | {"vars": variables}
        self._inventory.write_text(yaml.safe_dump({"all": everything}))

    def run(self, step: str) -> None:
        """Run the playbook of a step of the scenario."""
        done = subprocess.run(
            [ANSIBLE, f"--inventory={self._inventory}", f"molecule/default/{step}.yml"],
            cwd=self.project,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{step}: {done.stdout}{done.stderr}"


def _expand(text: str, environment: dict[str, str]) -> str:
    """Return `${NAME:-default}` and `${NAME}` with their values, as molecule expands them."""
    if not text.startswith("${"):
        return text
    name, rest = text[2:].split("}", 1)
    name, _, default = name.partition(":-")
    return environment.get(name, default.strip('"')) + rest


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


def test_the_molecule_scenario_passes(
    control_plane_cluster: Cluster,
    project: Path,
    kubectl: Kubectl,
    make_operator: Callable[[str], Operator],
    tmp_path: Path,
) -> None:
    """create, prepare, converge, verify and destroy pass; the samples are then Successful."""
    scratch = tmp_path / "molecule"
    scratch.mkdir()
    scenario = Scenario(project, kubectl, control_plane_cluster.kubeconfig, scratch)
    for step in ("create", "prepare", "converge"):
        scenario.run(step)
    operator = make_operator("operator").start()
    scenario.run("verify")
    for kind in ("memcached", "proxy"):
        sample = kubectl.get(f"{kind}.v1alpha1.cache.fresh.test", f"{kind}-sample")
        assert sample is not None
        conditions = {c["type"]: c["status"] for c in sample["status"]["conditions"]}
        assert conditions["Successful"] == "True"
    assert operator.terminate() == 0
    scenario.run("destroy")
    assert kubectl.get("namespace", kubectl.namespace) is None
    assert kubectl.get("crd", "memcacheds.cache.fresh.test") is None
