"""Restrictions of unit tests: no network, no leaked tasks, 30 seconds of CPU time each."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from pytest_socket import disable_socket, enable_socket

_CPU_SECONDS = 30
"""Most take milliseconds, and the longest 2 s; coverage doubles that, as does a busy machine, whose
shared cores compute less in a second."""


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """Refuse sockets; event loops wake themselves by a pair of Unix sockets."""
    disable_socket(allow_unix_socket=True)
    yield
    enable_socket()


@pytest.fixture(autouse=True)
def little_cpu_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """End a test that computes for too long; how busy the machine is does not matter."""
    # `make fuzz-resources` runs a hundred thousand examples.
    if request.config.getoption("--hypothesis-profile") == "fuzz":
        yield
        return

    def fail(*_: object) -> None:
        pytest.fail(f"a unit test took more than {_CPU_SECONDS} s of CPU time")

    previous = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, previous)


@pytest.fixture(autouse=True)
def no_leaked_tasks(request: pytest.FixtureRequest) -> None:
    """Fail a test that leaks tasks."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("_all_tasks_end")


@pytest.fixture
async def _all_tasks_end() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before
    assert left - {asyncio.current_task()} == set()
