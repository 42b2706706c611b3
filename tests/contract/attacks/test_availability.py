"""Attacks on availability: what costs the attacker little must cost the operator little."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from operator_runner.ansible.event_stream import MAX_LINE_BYTES, LocalRun
from operator_runner.core.errors import RunError
from operator_runner.net.certificates import server_context
from operator_runner.net.sockets import Connections, Listener

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
            while _handshakes() > 256 + 2:  # noqa: ASYNC110 the client has two: both ends
                await asyncio.sleep(0.01)
        assert len(list(connections)) <= 256 + 1
        client.close()
    finally:
        gc.enable()
        for _, writer in attackers:
            writer.transport.abort()
        await listener.stop()


async def test_events_of_any_size_end_the_run_and_not_the_operator() -> None:
    """A run that writes one huge line, millions of values or something else fails with a reason."""
    for line, reason in {
        b'{"event":"' + b"x" * 200_000_000: "event of more than 16777216 bytes",
        b'{"event_data":{"res":[' + b"[]," * 5_000_000 + b"0]}}\n": "more than 500000 values",
        b'{"event_data":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n": "expected a JSON object",
        b"[1]\n": "expected a JSON object",
        b'{"event": 1}\n': "expected a JSON object",
    }.items():
        async with written_by_run(line) as stream:
            with pytest.raises(RunError, match=reason):
                async for _ in stream.events():
                    pass


async def test_a_flood_of_events_leaves_others_their_turn() -> None:
    """While a million bytes of short lines are read, other tasks run many times."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(others())
    line, number = b'{"event":"verbose"}\n', 100_000
    async with written_by_run(line * number + b'{"exit_status":0}\n') as stream:
        turns_before = turns
        assert sum([1 async for _ in stream.events()]) == number
    other.cancel()
    assert turns - turns_before >= len(line) * number / 64 / 1024
    assert stream.exit_status == 0


@asynccontextmanager
async def written_by_run(data: bytes) -> AsyncIterator[LocalRun]:
    """Give the stream of a run that has written these bytes, as far as they are read."""
    ours, theirs = socket.socketpair()

    def write() -> None:
        with theirs, suppress(OSError):
            theirs.sendall(data)

    writer = asyncio.create_task(asyncio.to_thread(write))
    reader, closing = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
    try:
        yield LocalRun(reader)
    finally:
        closing.close()
        await writer


def _handshakes() -> int:
    return sum(isinstance(each, SSLProtocol) for each in gc.get_objects())
