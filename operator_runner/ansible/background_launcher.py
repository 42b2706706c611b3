"""Open a launcher in the background: the operator watches while Ansible is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from operator_runner.ansible.executor import LaunchedRun, Launcher
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.model import RunRequest


@dataclass(frozen=True, slots=True)
class BackgroundLauncher:
    """A launcher that is being opened; runs wait for it."""

    _opening: asyncio.Task[Launcher]

    async def ready(self) -> None:
        """Return when it is open. Raises what the opening has raised."""
        await self._opened()

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[LaunchedRun]:
        """See `executor.Launcher`."""
        launcher = await self._opened()
        async with launcher.start(request, rundir) as run:
            yield run

    async def _opened(self) -> Launcher:
        # A cancelled run must not cancel the opening for the others.
        return await asyncio.shield(self._opening)


@asynccontextmanager
async def open_in_background(
    opening: AbstractAsyncContextManager[Launcher],
) -> AsyncIterator[BackgroundLauncher]:
    """Begin to open a launcher; it is closed at the end of the block, also half-way."""
    async with AsyncExitStack() as stack:
        task = asyncio.create_task(stack.enter_async_context(opening), name="loading of Ansible")
        try:
            yield BackgroundLauncher(task)
        finally:
            await end_tasks([task])
