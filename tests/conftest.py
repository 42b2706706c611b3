"""What all tests share: their rules, and the local cluster that they run against."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl

# `make fuzz-resources` and `make fuzz-unchanged`: --hypothesis-profile=fuzz.
settings.register_profile(
    "fuzz", max_examples=100_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# The duration of an example depends on the load of the machine. `make test` tries the same examples
# each time, so that it does not fail by chance; `make fuzz-resources` searches further.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
# `make test-oldest`, `make test-matrix`: the examples have been tried on another Python.
settings.register_profile("short", settings.get_profile("tests"), max_examples=10)
settings.load_profile("tests")

# On OpenShift it is on: only users who may delete an object change its owner references.
OPENSHIFT_PLUGIN = "OwnerReferencesPermissionEnforcement"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of slow tests."""
    parser.addoption("--slow", action="store_true", help="run the tests with the mark slow too")


def pytest_configure() -> None:
    """Handle SIGINT as in a terminal: shells ignore it for background commands.

    And nohup ignores SIGHUP, as do some systems that run tests.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # ARGS of `make test ARGS=...` is not passed to the makes that tests run.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS"):
        os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Reject tests without a docstring; group tests by file, and run explicit groups first.

    Deselect slow tests unless they are wanted.

    The tests of a file run on one worker, and files of a common group too. The groups take
    longest, so they run first: no worker starts them when the others have ended.
    """
    silent = [
        item.nodeid
        for item in items
        if isinstance(item, pytest.Function) and not item.function.__doc__
    ]
    if silent:
        raise pytest.UsageError("tests without a docstring: " + ", ".join(silent))
    long = {item for item in items if item.get_closest_marker("xdist_group")}
    for item in set(items) - long:
        item.add_marker(pytest.mark.xdist_group(str(item.path)))
    yield
    items.sort(key=lambda item: item not in long)
    if not config.getoption("--slow"):
        slow = {item for item in items if item.get_closest_marker("slow")}
        config.hook.pytest_deselected(items=list(slow))
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def control_plane_cluster() -> Iterator[Cluster]:
    """Give a real API server with controllers but without nodes; needs no root."""
    cluster = Cluster(f"test-control-plane-{secrets.token_hex(3)}")
    cluster.up(control_plane_only=True, admission_plugins=(OPENSHIFT_PLUGIN,))
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def control_plane(control_plane_cluster: Cluster) -> Path:
    """Give the administrator's kubeconfig of the control plane."""
    return control_plane_cluster.kubeconfig


@pytest.fixture
def namespace(control_plane_cluster: Cluster) -> str:
    """Make a new namespace of the control plane."""
    return Kubectl.in_new_namespace(control_plane_cluster).namespace


@pytest.fixture
def kubectl(control_plane_cluster: Cluster, namespace: str) -> Kubectl:
    """Kubectl for the namespace of the test, also where a directory overrides `namespace`."""
    return Kubectl(control_plane_cluster.bin / "kubectl", namespace)
