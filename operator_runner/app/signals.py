"""Signals that end the operator, and waiting for its tasks until one does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from operator_runner.core.async_tasks import end_tasks

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")


class Interrupted(Exception):
    """A signal came before the end of the work, which was cancelled."""


def take_signals(stop: asyncio.Event) -> None:
    """Make signals that end a process set `stop` instead; nohup keeps SIGHUP ignored.

    The first one is logged.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, partial(_end, number, stop))


def _end(number: signal.Signals, stop: asyncio.Event) -> None:
    if not stop.is_set():
        _log.info("Stopping: received a signal", signal=number.name)
    stop.set()


async def until_one_ends(
    tasks: Sequence[asyncio.Task[_Result]], stop: asyncio.Event
) -> asyncio.Task[_Result] | None:
    """Wait for the first task to end, or for `stop`: then return None."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return next((task for task in tasks if task in done), None)


async def unless_stopped(work: Coroutine[Any, Any, _Result], stop: asyncio.Event) -> _Result:
    """Return the result of `work`. Raises Interrupted, after its cancellation, if `stop` is set."""
    task = asyncio.create_task(work)
    if await until_one_ends([task], stop) is None:
        await end_tasks([task])
        raise Interrupted
    return task.result()
