"""The molecule scenarios of the nginx operator, as ansible-playbook reads them."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.kubectl import Kubectl
from tests.support.molecule import ForeignResources, Molecule
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY
from tests.support.scaffold import init

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
SCENARIOS = REPOSITORY / "molecule"
SHARED = ("default/diagnose.yml", "kind/create.yml", "kind/destroy.yml")


def test_playbooks_and_tasks_pass_the_syntax_check(tmp_path: Path) -> None:
    """Each playbook of both scenarios, and each file of tasks that they include when they run."""
    plays = [
        *SCENARIOS.glob("*/*.yml"),
        *(_play_of(tasks, tmp_path) for tasks in SCENARIOS.glob("default/tasks/*.yml")),
    ]
    playbooks = [p for p in plays if p.name not in {"molecule.yml", "diagnose.yml"}]
    diagnose = _play_of(SCENARIOS / "default" / "diagnose.yml", tmp_path)
    done = subprocess.run(
        [ANSIBLE, "--syntax-check", *playbooks, diagnose],
        env=os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("playbook: ") == len(playbooks) + 1


def _play_of(tasks: Path, folder: Path) -> Path:
    play = folder / tasks.name
    content = [{"hosts": "localhost", "tasks": [{"ansible.builtin.import_tasks": str(tasks)}]}]
    play.write_text(yaml.safe_dump(content))
    return play


@pytest.mark.slow
def test_a_cluster_with_the_kind_is_refused(
    kubectl: Kubectl, control_plane: Path, tmp_path: Path
) -> None:
    """No step changes a CRD, a namespace or a resource that the test did not create."""
    test = Kubectl(kubectl.program, f"molecule-{secrets.token_hex(4)}")
    molecule = Molecule(REPOSITORY, test, control_plane, tmp_path / "molecule")
    running = {"OPERATOR_IMAGE": "none"}
    # Other tests may have left the CRD.
    kubectl("delete", "crd", KIND, "--ignore-not-found")
    kubectl("create", "namespace", test.namespace)
    molecule.refuses("destroy", f"did not create: Namespace {test.namespace}", **running)
    kubectl("delete", "namespace", test.namespace)
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    try:
        kubectl.wait_for_kinds(KIND)
        foreign = ForeignResources(kubectl, KIND)
        foreign.create("operator.example.com/v1alpha2", "NginxOperator", "theirs")
        before = foreign.state()
        molecule.refuses("test", f"did not create: CustomResourceDefinition {KIND}", **running)
        molecule.refuses("destroy", "OPERATOR_IMAGE and OPERATOR_PREVIOUS_IMAGE must both be set")
        assert foreign.state() == before
        # The test has created the CRD, and others a resource since then.
        mark = f"operator-runner.dev/molecule=nginx-operator/{test.namespace}"
        kubectl("annotate", "crd", KIND, mark)
        before = foreign.state()
        molecule.refuses("destroy", f"did not create: {foreign.namespace}/theirs", **running)
        assert foreign.state() == before
    finally:
        kubectl("delete", "crd", KIND)


def test_both_scenarios_do_the_same() -> None:
    """`kind` differs from `default` in the cluster and the images, in nothing that is tested."""
    default, kind = (
        yaml.safe_load((SCENARIOS / name / "molecule.yml").read_text())
        for name in ("default", "kind")
    )
    assert kind["scenario"] == default["scenario"]
    for step in ("converge", "verify", "cleanup"):
        assert kind["provisioner"]["playbooks"][step] == f"../default/{step}.yml"
    used = [d["provisioner"]["inventory"]["group_vars"]["all"] for d in (default, kind)]
    assert set(used[1]) == set(used[0]) | {"container_tool", "kind_cluster"}


@pytest.mark.parametrize("name", SHARED)
def test_common_files_equal_those_of_a_new_project(tmp_path: Path, name: str) -> None:
    """The scaffold and this project have the same text."""
    init(tmp_path / "fresh")
    assert (SCENARIOS / name).read_text() == (tmp_path / "fresh" / "molecule" / name).read_text()
