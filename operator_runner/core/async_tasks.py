"""Tasks of asyncio that are ended together, and threads that are not abandoned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, TypeVarTuple

_Result = TypeVar("_Result")
_Args = TypeVarTuple("_Args")


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for them; the caller reads their results and exceptions."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def finish_in_thread(function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
    """Call in a thread, as asyncio.to_thread; return after the end of the call, also if cancelled.

    The caller can therefore close what the call uses.
    """
    call = asyncio.create_task(asyncio.to_thread(function, *args))
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        try:
            await asyncio.wait({call})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from call.exception()
    return call.result()
