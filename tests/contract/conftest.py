"""Fixtures of all contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.core.fencing import Fences, LeaseTerm
from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.contract.kube.scripted import ScriptedServer
from tests.fakes.term import Clock, held_term


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of the launchers' contract, and the random sequences of `make prune`."""
    parser.addoption("--prune-sequences", type=int, default=25)
    parser.addoption("--prune-seed", type=int, default=1)
    parser.addoption(
        "--all-as-jobs",
        action="store_true",
        help="run all cases of the launchers' contract as Jobs too, not a selection",
    )
    parser.addoption(
        "--without-patches",
        default="",
        help="run the launchers' contract without each of these patches too; all: without each",
    )


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


@pytest.fixture
def clock() -> Clock:
    """Return the clock of the term."""
    return Clock()


@pytest.fixture
def term(clock: Clock, request: pytest.FixtureRequest) -> LeaseTerm:
    """Return the term of a held Lease; its duration and renew deadline may be parameters."""
    return held_term(clock, *getattr(request, "param", (15.0, 10.0)))


@pytest.fixture
def fences(term: LeaseTerm) -> Fences:
    """Return the fences of all resources."""
    return Fences(lambda _: term)
