"""Attacks on availability: what costs the attacker little must cost the operator little."""

from __future__ import annotations

import asyncio
import gc
import ssl
from asyncio.sslproto import SSLProtocol
from pathlib import Path

from aiohttp import web

from operator_runner.net.connections import Connections
from operator_runner.net.serving_certificate import server_context
from operator_runner.net.sockets import Listener

LOOPBACK = "127.0.0.1"


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(received, sent, server_hostname=LOOPBACK)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("the handshake needs no response")


async def test_unfinished_tls_handshakes_use_little_memory_and_delay_nobody(
    tmp_path: Path,
) -> None:
    """Of 600 handshakes that are not continued at most 256 are kept, and a client is served."""
    authority = tmp_path / "ca.crt"
    connections = Connections(4096)

    async def answer(request: web.BaseRequest) -> web.Response:
        with connections.serving(request.protocol):
            return web.Response(text="here")

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    listener = Listener(runner, server_context(authority, [LOOPBACK]), connections=connections)
    listener.open(LOOPBACK, 0)
    hello = client_hello()
    gc.collect()
    gc.disable()  # the memory must not wait for a collection, which may be hours away
    attackers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        for _ in range(600):
            attackers.append(await asyncio.open_connection(LOOPBACK, listener.port))
            attackers[-1][1].write(hello)
        trust = ssl.create_default_context(cafile=str(authority))
        async with asyncio.timeout(60):
            reader, client = await asyncio.open_connection(LOOPBACK, listener.port, ssl=trust)
            client.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            while _handshakes() > 256 + 2:  # the client has two, its own and that of the server
                await asyncio.sleep(0.01)
        assert len(list(connections)) <= 256 + 1
        client.close()
    finally:
        gc.enable()
        for _, writer in attackers:
            writer.transport.abort()
        await listener.stop()


def _handshakes() -> int:
    return sum(isinstance(each, SSLProtocol) for each in gc.get_objects())
