"""The whole operator against a real API server, with a project whose roles do little."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.environment import BenchEnvironment
from operator_runner.devcluster import Cluster
from tests.support import audit_log as audit
from tests.support.audit_log import AuditLog
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli

PROJECT = Path(__file__).parent / "project"
ECHOES = "echoes.test.example.com"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add how long an answer may take on the first day; a busy machine takes longer.

    And the folder for pictures of the web page, for `make ui-pictures`, and the random edits of
    `make true-status`.
    """
    parser.addoption("--answer-seconds", type=float, default=180)
    parser.addoption("--pictures", type=Path, default=None)
    parser.addoption("--edits", type=int, default=45)
    parser.addoption("--edits-seed", type=int, default=1)


@pytest.fixture(scope="session", autouse=True)
def echo_crd(control_plane_cluster: Cluster) -> None:
    """Install the CRD of the project once."""
    control_plane_cluster.exec(["kubectl", "apply", f"--filename={PROJECT / 'crd.yaml'}"])
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    kubectl.wait_for_kinds(ECHOES)


@pytest.fixture(scope="module")
def audited_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a control plane with the CRD and an audit log of all writes."""
    policy = tmp_path_factory.mktemp("audit") / "policy.yaml"
    with audit.audited_cluster(policy, PROJECT / "crd.yaml", ECHOES) as cluster:
        yield cluster


@pytest.fixture
def audited_kubectl(audited_cluster: Cluster) -> Kubectl:
    """Kubectl for a namespace of the test, with an audit log."""
    return Kubectl.in_new_namespace(audited_cluster)


@pytest.fixture
def audit_log(audited_cluster: Cluster, audited_kubectl: Kubectl) -> AuditLog:
    """Return the audit log of the test's namespace."""
    return AuditLog(audited_cluster.home.log_of("audit"), audited_kubectl.namespace)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project that the test may edit."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


@pytest.fixture
def make_operator(
    control_plane: Path, kubectl: Kubectl, project: Path, tmp_path: Path
) -> Iterator[Callable[[str], Operator]]:
    """Give a maker of operators (by name) that watch the test's namespace.

    Their log is shown if a test fails.
    """
    made: list[Operator] = []

    def make(name: str) -> Operator:
        scratch = tmp_path / name
        scratch.mkdir()
        made.append(Operator(project, control_plane, kubectl.namespace, scratch, {}))
        return made[-1]

    yield make
    for operator in made:
        operator.kill()
        sys.stdout.write(f"Log of {operator.scratch.name}:\n{operator.log()}")


@pytest.fixture
def operator(make_operator: Callable[[str], Operator]) -> Operator:
    """Give one operator; it is not started yet."""
    return make_operator("operator")


@pytest.fixture
def cli(control_plane: Path, kubectl: Kubectl) -> RunnerCli:
    """Give the commands for the test's namespace."""
    return RunnerCli(control_plane, kubectl.namespace)


@pytest.fixture
def bench_environment(control_plane_cluster: Cluster, tmp_path: Path) -> BenchEnvironment:
    """Return the bench's kinds on the control plane, without remaining resources of other tests."""
    control_plane_cluster.exec(["kubectl", "delete", "crd", KIND, "--ignore-not-found"])
    return BenchEnvironment(control_plane_cluster, tmp_path)
