"""Receive the bodies of requests within a limit of memory.

A slow client does not delay others: it uses the memory of what it has sent. If bodies need more
memory than there is, further parts wait; the body that has been incomplete longest is refused after
some seconds, and the others continue.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

_GRACE_SECONDS = 5.0
"""Time for a body before it is refused for the sake of others. The API server waits 30 s for a
conversion."""
_LARGEST_BODIES = 2
"""Bodies of the maximum size that fit at once."""
_MIN_BYTES = 16 * 1024 * 1024


@dataclass(eq=False, slots=True)
class _IncompleteBody:
    """A body that is being received, and the timeout of its reader."""

    started: float
    timeout: asyncio.Timeout
    size: int = 0


class BodyReceiver:
    """Receives the bodies of a server's requests."""

    def __init__(self) -> None:
        """Begin without bodies."""
        self._incomplete: list[_IncompleteBody] = []
        """In the order of their arrival."""
        self._received = 0
        """Bytes of all of them."""
        self._freed = asyncio.Event()

    async def receive(self, request: web.Request) -> None:
        """Receive the body; `request.read()` then returns it.

        Raises TimeoutError if others need the memory, HTTPRequestEntityTooLarge and
        RequestPayloadError.
        """
        body = bytearray()
        async with asyncio.timeout(None) as timeout:
            one = _IncompleteBody(asyncio.get_running_loop().time(), timeout)
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
                self._received -= one.size
                self._freed.set()
        request._read_bytes = bytes(body)  # noqa: SLF001 (where aiohttp keeps it)

    async def _reserve(self, one: _IncompleteBody, size: int, largest: int) -> None:
        """Wait until the memory has room for a part of a body."""
        limit = max(_LARGEST_BODIES * largest, _MIN_BYTES)
        while self._received + size > limit:
            oldest = self._incomplete[0]
            if not oldest.timeout.expired():
                oldest.timeout.reschedule(oldest.started + _GRACE_SECONDS)
            self._freed.clear()
            await self._freed.wait()
        one.size += size
        self._received += size
