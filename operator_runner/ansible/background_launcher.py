"""Open a launcher in the background: the operator watches while Ansible is loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from operator_runner.ansible.executor import LaunchedRun, Launcher
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.model import RunRequest

_log = structlog.get_logger(__name__)

_REPORT_SECONDS = 60.0
"""Loading takes a few seconds; on a busy node some ten."""


@dataclass(frozen=True, slots=True)
class BackgroundLauncher:
    """A launcher that is being opened; runs wait for it."""

    _opening: asyncio.Task[Launcher]

    async def ready(self) -> None:
        """Return when a run can start. Raises the error of the launcher's opening."""
        launcher = await self._opened()
        await launcher.ready()

    async def failed(self) -> None:
        """Wait until the opening fails, and raise its error; never return if it succeeds."""
        await self._opened()
        await asyncio.Event().wait()

    @property
    def fault(self) -> str | None:
        """Why no run can start; None if runs can, or will when the launcher is open."""
        if not self._opening.done() or self._opening.cancelled():
            return None
        error = self._opening.exception()
        return None if error is None else f"cannot load Ansible: {error or type(error).__name__}"

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[LaunchedRun]:
        """See `executor.Launcher`."""
        launcher = await self._opened()
        async with launcher.start(request, rundir) as run:
            yield run

    async def _opened(self) -> Launcher:
        # A cancelled run must not cancel the opening for other runs.
        return await asyncio.shield(self._opening)


@asynccontextmanager
async def open_in_background(
    opening: AbstractAsyncContextManager[Launcher], report_seconds: float = _REPORT_SECONDS
) -> AsyncIterator[BackgroundLauncher]:
    """Begin to open a launcher; it is closed at the end of the block, also half-way.

    An opening that takes long is logged every `report_seconds`.
    """
    async with AsyncExitStack() as stack:
        task = asyncio.create_task(stack.enter_async_context(opening), name="loading of Ansible")
        reporting = asyncio.create_task(_report(task, report_seconds))
        try:
            yield BackgroundLauncher(task)
        finally:
            await end_tasks([reporting, task])


async def _report(opening: asyncio.Task[Launcher], pause: float) -> None:
    """Log at intervals that the launcher is still being opened."""
    started = time.monotonic()
    while not (await asyncio.wait({opening}, timeout=pause))[0]:
        _log.warning(
            "Ansible is still loading; runs wait for it",
            seconds=round(time.monotonic() - started),
            hint="give the operator more CPU; if it never ends, set --executor=cold",
        )
