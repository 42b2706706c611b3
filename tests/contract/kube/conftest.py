"""Connections to the real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection, connect


@pytest.fixture
async def connection(control_plane: Path) -> AsyncIterator[Connection]:
    """Connect to the control plane as its administrator."""
    opened = await connect(control_plane, user_agent="tests")
    yield opened
    await opened.close()


@pytest.fixture
def api(connection: Connection) -> Api:
    """Return an Api of the control plane."""
    return Api(connection)


@pytest.fixture
def discovery(api: Api) -> Discovery:
    """Return a discovery with an empty cache."""
    return Discovery(api)
