"""The molecule scenario of the nginx operator, on a cluster whose nginx answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY

TOOLS = Path(sys.executable).parent

pytestmark = pytest.mark.xdist_group("molecule")


@pytest.fixture
def without_kind(cluster: Cluster) -> Iterator[Cluster]:
    """Delete the kind with remaining resources of other tests; restore it afterwards."""
    crds = str(REPOSITORY / "crds")
    cluster.exec(["kubectl", "delete", KIND, "--all", "--all-namespaces"])
    cluster.exec(["kubectl", "delete", "--filename", crds])
    yield cluster
    cluster.exec(["kubectl", "apply", "--filename", crds])
    Kubectl(cluster.bin / "kubectl", "default").wait_for_kinds(KIND)


@pytest.mark.parametrize(
    "steps",
    [
        # As people who work on the role type them; test_upgrade.py has an upgrade too.
        ["converge", "idempotence", "verify", "cleanup", "destroy"],
        pytest.param(["test"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_the_molecule_scenario_passes(
    without_kind: Cluster, nginx_image: str, tmp_path: Path, steps: Sequence[str]
) -> None:
    """Installation, idempotence, verification, upgrade, and removal without leftovers."""
    environment = os.environ | {
        "PATH": f"{without_kind.home.tools}:{TOOLS}:{os.environ['PATH']}",
        "KUBECONFIG": str(without_kind.kubeconfig),
        "OPERATOR_IMAGE": "none",
        "RELATED_IMAGE_NGINX": nginx_image,
        "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule"),
    }
    for step in steps:
        done = subprocess.run(
            [TOOLS / "molecule", step],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    left = without_kind.exec(["kubectl", "get", "namespaces,crds", "--output=name"])
    assert "nginx-operator-test" not in left
    assert KIND not in left
