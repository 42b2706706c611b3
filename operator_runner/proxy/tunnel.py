"""Upgraded connections (exec, attach, port-forward): bytes both ways until one side ends.

They carry websocket frames or SPDY, which this module does not decode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import structlog
from aiohttp import hdrs, web
from aiohttp.http import StreamWriter

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fence
from operator_runner.proxy.bodies import response_headers

_CHUNK_BYTES = 64 * 1024
_log = structlog.get_logger(__name__)


class _Inbound:
    """Receives a connection's bytes after its upgrade, with the interface of aiohttp's parsers."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self.reader = asyncio.StreamReader(_CHUNK_BYTES)
        if transport is not None:
            # Backpressure: the reader pauses a sender that is faster than the other side.
            self.reader.set_transport(transport)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes; return whether the stream has ended and what is left, as aiohttp expects."""
        self.reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        """Note that the connection is closed."""
        self.reader.feed_eof()


async def join(
    request: web.BaseRequest, upstream: aiohttp.ClientResponse, fence: Fence
) -> web.StreamResponse:
    """Respond with the API server's 101 and copy bytes until either side closes.

    Bytes of the client are permitted by `fence`; the first ones that are not close both sides.
    """
    connection = upstream.connection
    assert connection is not None
    protocol: Any = connection.protocol
    assert protocol is not None
    client, server = _Inbound(request.transport), _Inbound(connection.transport)

    response = web.StreamResponse(
        status=upstream.status, reason=upstream.reason, headers=response_headers(upstream.headers)
    )
    response.headers[hdrs.CONNECTION] = "Upgrade"
    response.headers[hdrs.UPGRADE] = upstream.headers.get(hdrs.UPGRADE, "")
    response.force_close()
    # Before the client may send: from here on its bytes are not HTTP requests.
    request.protocol.set_parser(client)  # type: ignore[arg-type] # only feed_* are called
    await response.prepare(request)
    protocol.set_parser(server, None)

    outbound = StreamWriter(protocol, asyncio.get_running_loop())

    async def send(chunk: bytes) -> None:
        fence.check()
        await outbound.write(chunk)

    pumps = [
        asyncio.create_task(_pump(client.reader, send), name="tunnel to the API server"),
        asyncio.create_task(_pump(server.reader, response.write), name="tunnel to the client"),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(pumps)
        upstream.close()
    return response


async def _pump(reader: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]) -> None:
    # A closed side is the normal end of a tunnel.
    try:
        while data := await reader.read(_CHUNK_BYTES):
            await write(data)
    except ConnectionError:
        return
    except Fenced as refusal:
        _log.warning("Closing a stream to the API server", error=str(refusal))
