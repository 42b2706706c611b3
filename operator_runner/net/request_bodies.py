"""Receive the bodies of requests within a limit of memory.

A slow client does not delay others: it uses the memory of what it has sent. If bodies need more
memory than there is, further parts wait; if the incomplete ones alone do, the body that has been
incomplete longest is refused after some seconds, and the others continue. Complete bodies use
memory until their requests are answered, or until their response begins if it is streamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

_GRACE_SECONDS = 5.0
"""Time for a body before it is refused for the sake of others. The API server waits 30 s for a
conversion."""
_LARGEST_BODIES = 2
"""Bodies of the maximum size that fit at once."""
_MIN_BYTES = 16 * 1024 * 1024


@dataclass(eq=False, slots=True)
class _Body:
    """The received part of a body, and the timeout of its reader."""

    started: float
    timeout: asyncio.Timeout
    size: int = 0


class BodyReceiver:
    """Receives the bodies of a server's requests."""

    def __init__(self) -> None:
        """Begin without bodies."""
        self._incomplete: list[_Body] = []
        """In the order of their arrival."""
        self._incomplete_bytes = 0
        self._complete_bytes = 0
        """Bytes of all bodies of requests that are not answered yet."""
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def received(self, request: web.Request) -> AsyncIterator[Callable[[], None]]:
        """Receive the body, which `request.read()` returns, and count its memory in the block.

        Give a function that drops the body before the end of the block. Raises TimeoutError if
        others need the memory, HTTPRequestEntityTooLarge and RequestPayloadError.
        """
        size = await self._receive(request)
        self._complete_bytes += size

        def drop() -> None:
            request._read_bytes = b""  # noqa: SLF001 (where aiohttp keeps it)
            self._complete_bytes -= size
            self._freed.set()

        with ExitStack() as stack:
            stack.callback(drop)
            yield stack.close

    async def _receive(self, request: web.Request) -> int:
        """Receive the body and return its size, which is no longer counted."""
        body = bytearray()
        async with asyncio.timeout(None) as timeout:
            one = _Body(asyncio.get_running_loop().time(), timeout)
            self._incomplete.append(one)
            try:
                async for chunk in request.content.iter_any():
                    size = one.size + len(chunk)
                    if size > request.client_max_size:
                        raise web.HTTPRequestEntityTooLarge(request.client_max_size, size)
                    await self._reserve(one, len(chunk), request.client_max_size)
                    body += chunk
            finally:
                self._incomplete.remove(one)
                self._incomplete_bytes -= one.size
                self._freed.set()
        request._read_bytes = bytes(body)  # noqa: SLF001 (where aiohttp keeps it)
        return len(body)

    async def _reserve(self, one: _Body, size: int, largest: int) -> None:
        """Wait until the memory has room for a part of a body."""
        limit = max(_LARGEST_BODIES * largest, _MIN_BYTES)
        while self._incomplete_bytes + self._complete_bytes + size > limit:
            oldest = self._incomplete[0]
            are_too_many = self._incomplete_bytes + size > limit
            if are_too_many and not oldest.timeout.expired():
                oldest.timeout.reschedule(oldest.started + _GRACE_SECONDS)
            self._freed.clear()
            await self._freed.wait()
        one.size += size
        self._incomplete_bytes += size
