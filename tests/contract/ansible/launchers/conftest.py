"""One contract for all launchers: every case runs through each, and gives the same record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.ansible.patches.registry import switchable_names
from operator_runner.core.settings import AnsibleSettings
from operator_runner.devcluster import Cluster
from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.pods import Pods
from tests.support.kubectl import Kubectl


@pytest.fixture(scope="session", autouse=True)
def steady_environment() -> Iterator[None]:
    """Give both launchers one environment, in which sets have one order in all processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")
        for name in ("COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
            # pytest imports readline, whose C library sets them behind the back of os.environ.
            os.unsetenv(name)
        yield


@pytest.fixture(scope="session")
def launchers(steady_environment: None, request: pytest.FixtureRequest) -> Iterator[Launchers]:
    """Share the launchers: a fork server takes seconds to start."""
    del steady_environment  # they inherit it
    names = request.config.getoption("--without-patches").split()
    patches = switchable_names() if names == ["all"] else names
    with Launchers(AnsibleSettings(skip_facts=True), patches) as opened:
        yield opened


@pytest.fixture(scope="session")
def pods(
    launchers: Launchers, control_plane_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Pods:
    """Let the launchers start Jobs, on the control plane."""
    kubectl = Kubectl.in_new_namespace(control_plane_cluster)
    kubectl.wait_for_account()
    opened = Pods(
        control_plane_cluster.kubeconfig, kubectl.namespace, tmp_path_factory.mktemp("pods")
    )
    launchers.open_pods(opened)
    return opened


@pytest.fixture
def both(launchers: Launchers, tmp_path: Path, request: pytest.FixtureRequest) -> Both:
    """Run a project through the launchers, compare, and return the record.

    Tests with the mark `as_job` run it as a Job too, with --all-as-jobs all tests but those with
    the mark `local_only`.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    is_chosen = "as_job" in marks or request.config.getoption("--all-as-jobs")
    with_job = is_chosen and "local_only" not in marks
    if with_job:
        request.getfixturevalue("pods")
    return Both(launchers, tmp_path, with_job=with_job)
