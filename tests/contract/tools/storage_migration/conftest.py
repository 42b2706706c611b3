"""A kind with two versions on the real API server, and a webhook that can refuse and hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.contract.tools.storage_migration.webhook import Webhook
from tests.contract.tools.storage_migration.widgets import Widgets
from tests.support.etcd import Etcd


@pytest.fixture
async def api(control_plane: Path) -> AsyncIterator[Api]:
    """Give requests to the control plane as its administrator."""
    opened = await connect(control_plane, user_agent="tests")
    yield Api(opened)
    await opened.close()


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    """Start a webhook on loopback, not registered yet."""
    server = Webhook(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def widgets(
    api: Api, control_plane_cluster: Cluster, namespace: str
) -> AsyncIterator[Widgets]:
    """Install a CRD of its own for the test; objects are stored in v1."""
    made = Widgets(api, Etcd(control_plane_cluster), namespace)
    await made.install()
    yield made
    await made.uninstall()
