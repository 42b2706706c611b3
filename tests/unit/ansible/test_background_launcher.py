"""A launcher that is opened while the operator starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest
import structlog.testing

from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.executor import Launcher, open_in_background
from operator_runner.core.settings import AnsibleSettings


class Opening:
    """A launcher that opens on demand of a test."""

    def __init__(self) -> None:
        self.begun, self.may_open = asyncio.Event(), asyncio.Event()
        self.steps = list[str]()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Launcher]:
        self.steps.append("begun")
        self.begun.set()
        try:
            await self.may_open.wait()
            self.steps.append("open")
            yield ColdLauncher(AnsibleSettings())
        finally:
            self.steps.append("closed")


async def test_runs_wait_until_the_launcher_is_open() -> None:
    """A run that is cancelled meanwhile does not cancel the opening for the next one."""
    opening = Opening()
    async with open_in_background(opening()) as launcher:
        first, second = (asyncio.create_task(launcher.ready()) for _ in range(2))
        await opening.begun.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert opening.steps == ["begun"]
        assert not second.done()
        opening.may_open.set()
        await second
        assert opening.steps == ["begun", "open"]
    assert opening.steps == ["begun", "open", "closed"]


class Unloaded(ColdLauncher):
    """A launcher that is open, and has to load Ansible again."""

    def __init__(self) -> None:
        super().__init__(AnsibleSettings())
        self.may_load = asyncio.Event()

    async def ready(self) -> None:
        await self.may_load.wait()


async def test_runs_wait_until_ansible_is_loaded_again() -> None:
    """An open launcher is not enough: the timeout of a run begins when it can start."""
    unloaded = Unloaded()
    async with open_in_background(nullcontext(unloaded)) as launcher:
        ready = asyncio.create_task(launcher.ready())
        assert not (await asyncio.wait({ready}, timeout=0.1))[0]
        unloaded.may_load.set()
        await ready


async def test_a_launcher_that_is_not_open_yet_is_closed() -> None:
    """An operator that ends at once leaves no fork server behind."""
    opening = Opening()
    async with open_in_background(opening()):
        await opening.begun.wait()
    assert opening.steps == ["begun", "closed"]


async def test_a_failed_opening_fails_each_run() -> None:
    """All callers that wait for a run get the error, and the operator ends or is not ready."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[Launcher]:
        raise ValueError("no answer")
        yield

    async with open_in_background(opening()) as launcher:
        for _ in range(2):
            with pytest.raises(ValueError, match="no answer"):
                await launcher.ready()
        with pytest.raises(ValueError, match="no answer"):
            await launcher.failed()
        assert launcher.fault == "cannot load Ansible: no answer"


async def test_an_open_launcher_has_no_fault() -> None:
    """Neither before nor after it is open."""
    opening = Opening()
    async with open_in_background(opening()) as launcher:
        assert launcher.fault is None
        opening.may_open.set()
        await launcher.ready()
        assert launcher.fault is None


async def test_an_opening_that_hangs_is_logged() -> None:
    """Otherwise nothing shows why no run starts."""
    with structlog.testing.capture_logs() as logs:
        async with open_in_background(Opening()(), report_seconds=0.01), asyncio.timeout(60):
            while len(logs) < 2:  # noqa: ASYNC110 (a log has no event to wait for)
                await asyncio.sleep(0.01)
    assert logs[0]["event"] == "Ansible is still loading; runs wait for it"
    assert logs[0]["log_level"] == "warning"
