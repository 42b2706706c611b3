"""Waiting on the event loop for the world to be as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(look: Callable[[], Awaitable[bool]], seconds: float = 180) -> None:
    """Return as soon as `look` is true; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 the world outside sets no Event
            await asyncio.sleep(0.05)
