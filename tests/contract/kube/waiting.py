"""Wait on the event loop until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(look: Callable[[], Awaitable[bool]], seconds: float = 180) -> None:
    """Return as soon as `look` is true; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 no Event is set for it
            await asyncio.sleep(0.05)
