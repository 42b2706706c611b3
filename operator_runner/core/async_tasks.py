"""Tasks of asyncio, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for them; the caller reads their results and exceptions."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
