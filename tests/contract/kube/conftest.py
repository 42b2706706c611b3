"""Connections to the real API server, and a server on loopback that answers as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection, connect
from tests.contract.kube.scripted import ScriptedServer


@pytest.fixture
async def connection(control_plane: Path) -> AsyncIterator[Connection]:
    """Connect to the control plane as its administrator."""
    opened = await connect(control_plane, user_agent="tests")
    yield opened
    await opened.close()


@pytest.fixture
def api(connection: Connection) -> Api:
    """Give requests to the control plane."""
    return Api(connection)


@pytest.fixture
def discovery(api: Api) -> Discovery:
    """Give a discovery that has asked nothing yet."""
    return Discovery(api)


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    """Start a server that stands in for an API server in trouble."""
    server = ScriptedServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def scripted_api(scripted: ScriptedServer) -> AsyncIterator[Api]:
    """Give requests to the scripted server."""
    opened = await connect(scripted.kubeconfig(), user_agent="tests")
    yield Api(opened)
    await opened.close()
