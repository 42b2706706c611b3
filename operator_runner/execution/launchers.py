"""Which launcher runs the plays: the one that is asked for, or the one that can."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from operator_runner.errors import RunError
from operator_runner.execution.cold import ColdLauncher
from operator_runner.execution.executor import Launcher
from operator_runner.execution.warm.launcher import WarmLauncher
from operator_runner.settings import AnsibleSettings, ExecutorName

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_launcher(
    kind: ExecutorName, ansible: AnsibleSettings, started: Callable[[], None] = lambda: None
) -> AsyncIterator[Launcher]:
    """Return a launcher that is ready; cold, with a warning, where warm cannot be had.

    `started` is told of each process that is started to fork runs from.
    """
    if kind == "warm":
        warm = WarmLauncher(ansible, started)
        try:
            await warm.open()
        except (RunError, OSError) as error:
            _log.warning("Running plays cold, each in new processes", reason=str(error))
        else:
            try:
                yield warm
            finally:
                await warm.close()
            return
    yield ColdLauncher(ansible)
