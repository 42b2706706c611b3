"""Fixtures of all contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.contract.kube.scripted import ScriptedServer


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    """Start a server whose responses the test sets, in place of an API server that fails."""
    server = ScriptedServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def scripted_api(scripted: ScriptedServer) -> AsyncIterator[Api]:
    """Return an Api of the scripted server."""
    opened = await connect(scripted.kubeconfig(), user_agent="tests")
    yield Api(opened)
    await opened.close()
