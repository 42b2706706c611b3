"""Run CPU-bound work outside the event loop, so that it does not delay probes and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkerThread:
    """A single thread with a queue.

    A second thread would wait for the interpreter's lock. Callers limit each run to one queued
    call.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")

    async def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run `function` in the thread; return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Cancel queued calls; a running one is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
