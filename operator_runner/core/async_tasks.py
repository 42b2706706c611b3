"""Tasks of asyncio that are ended together, and calls in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
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

    The caller can therefore close what the call uses. If no thread can be started, the function is
    called at once: the pool of threads would keep it, and call it at any time later.
    """
    work: Future[_Result] = Future()

    def call() -> None:
        if work.set_running_or_notify_cancel():
            try:
                work.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 raised below
                work.set_exception(error)

    try:
        pooled = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    except RuntimeError:  # no thread can be started; another one may have taken it all the same
        if work.cancel():
            return function(*args)
    else:
        pooled.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    waiting = asyncio.wrap_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from waiting.exception()
    return waiting.result()


class WorkerThread:
    """A single thread with a queue, for CPU-bound work that must not delay probes and watches.

    A second thread would wait for the interpreter's lock. Callers limit each run to one queued
    call.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")

    async def call(self, function: Callable[[*_Args], _Result], *args: *_Args) -> _Result:
        """Run `function` in the thread; return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *args)

    def close(self) -> None:
        """Cancel queued calls; a running one is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
