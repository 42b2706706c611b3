"""The fixtures of the pytest plugin. Each can be overridden in a conftest.py."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from operator_runner.core.kubeconfig import kubeconfig_files
from operator_runner.testing.reconciling import OperatorProcess, OperatorProcessError, Reconcile

_WATCHES = "watches.yaml"
_CRD_FOLDERS = ("crds", "config/crd/bases")
_RECONCILE = pytest.StashKey[Reconcile]()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Path]:
    """Give the kubeconfig of a cluster: that of KUBECONFIG, else of a control plane of its own.

    That one has a real API server and controllers, but no nodes: Pods do not run. It is removed at
    the end.
    """
    if files := kubeconfig_files(os.environ.get("KUBECONFIG", "")):
        yield Path(os.pathsep.join(map(str, files)))
        return
    # Imported here because tests with a cluster of their own do not need it.
    from operator_runner.devcluster import Cluster  # noqa: PLC0415

    cluster = Cluster(f"testing-{secrets.token_hex(3)}")
    cluster.up(control_plane_only=True)
    try:
        yield cluster.kubeconfig
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def operator_project(request: pytest.FixtureRequest) -> Path:
    """Return the directory with watches.yaml above the first test."""
    first = request.session.items[0].path
    for folder in first.parents:
        if (folder / _WATCHES).exists():
            return folder
    raise OperatorProcessError(
        f"No directory above {first} has a {_WATCHES}: move the tests into the operator project, "
        "or override the fixture operator_project in conftest.py"
    )


@pytest.fixture(scope="session")
def crd_files(operator_project: Path) -> Sequence[Path]:
    """Return the files with CRDs to install: those in crds/ and config/crd/bases/."""
    found = (operator_project / folder for folder in _CRD_FOLDERS)
    return [file for folder in found for file in sorted(folder.glob("*.y*ml"))]


@pytest.fixture(scope="session")
def operator_flags() -> Sequence[str]:
    """Return further flags of `operator-runner run`, by default none."""
    return ()


@pytest.fixture(scope="session")
def operator_environment() -> Mapping[str, str]:
    """Return further variables of the operator's environment, by default none."""
    return {}


@pytest.fixture(scope="session")
def operator_process(  # noqa: PLR0917 (pytest passes fixtures by name)
    control_plane: Path,
    operator_project: Path,
    crd_files: Sequence[Path],
    operator_flags: Sequence[str],
    operator_environment: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    """Give the operator of the project, after the CRDs are installed and served."""
    scratch = tmp_path_factory.mktemp("operator")
    process = OperatorProcess(
        operator_project, control_plane, scratch, operator_flags, operator_environment
    )
    try:
        process.call("install", files=[str(file.absolute()) for file in crd_files])
        yield process
        process.call("uninstall")
    finally:
        process.stop()


@pytest.fixture
def namespace(operator_process: OperatorProcess) -> Iterator[str]:
    """Give the name of a new namespace, which is deleted after the test."""
    name = f"test-{secrets.token_hex(4)}"
    operator_process.call("create_namespace", name=name)
    yield name
    operator_process.call("delete_namespace", name=name)


@pytest.fixture
def reconcile(
    operator_process: OperatorProcess, namespace: str, request: pytest.FixtureRequest
) -> Iterator[Reconcile]:
    """Give a function that reconciles a resource once and returns its Outcome."""
    reconcile = Reconcile(operator_process, namespace)
    request.node.stash[_RECONCILE] = reconcile
    yield reconcile
    reconcile.remove_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add failures and output of reconciles to the report of a test that has failed."""
    report = yield
    reconcile = item.stash.get(_RECONCILE, None)
    if report.failed and report.when == "call" and reconcile is not None:
        for number, outcome in enumerate(reconcile.outcomes, 1):
            report.sections.append((f"Reconcile {number}: {outcome!r}", outcome.output))
    return report
