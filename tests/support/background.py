"""Tasks beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something as long as the block; its own failure is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
    if not isinstance(ended, asyncio.CancelledError) and ended is not None:
        raise ended
