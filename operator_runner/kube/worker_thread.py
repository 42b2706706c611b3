"""Work on bodies beside the event loop: what is large must not delay probes, watches and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkerThread:
    """One thread; what it is given waits in line.

    A second one would wait for the interpreter's lock. Callers see to it that nobody stands in
    the line twice.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")

    async def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what the function returns; what it raises is raised here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Drop what waits; what is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
