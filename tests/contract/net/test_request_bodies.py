"""Bodies of requests over real sockets: slow clients, and more than the memory has room for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from operator_runner.net import request_bodies
from operator_runner.net.sockets import Listener
from operator_runner.telemetry.servers import serve

LOOPBACK = "127.0.0.1"
LARGEST = 100_000
ROOM = 2 * LARGEST


@dataclass
class Busy:
    """The requests whose body is complete: they are answered as soon as `ended` is set."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    answering: int = 0
    most: int = 0


@pytest.fixture
def busy() -> Busy:
    """Answer requests at once, unless a test clears `ended`."""
    made = Busy()
    made.ended.set()
    return made


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch, busy: Busy) -> AsyncIterator[Listener]:
    """Serve the length of a body, with memory for two of the largest."""

    async def answer(request: web.Request) -> web.Response:
        busy.answering += 1
        busy.most = max(busy.most, busy.answering)
        await busy.ended.wait()
        busy.answering -= 1
        return web.Response(text=str(len(await request.read())))

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await busy.ended.wait()
        return response

    monkeypatch.setattr(request_bodies, "_MIN_BYTES", ROOM)
    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/", answer)
    app.router.add_get("/", stream)
    listener = await serve(app, LOOPBACK, 0, "--port")
    yield listener
    await listener.stop()


async def post(server: Listener, body: bytes) -> tuple[int, str]:
    """Send a body at once."""
    url = f"http://{LOOPBACK}:{server.port}/"
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as answer:
        return answer.status, await answer.text()


async def begin(
    server: Listener, sent: bytes, length: int = LARGEST
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the first part of a body and leave the rest out."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    writer.write(f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode() + sent)
    await writer.drain()
    return reader, writer


async def test_slow_clients_do_not_delay_large_bodies(
    server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many begin a large body: they use the memory of what they have sent."""
    monkeypatch.setattr(request_bodies, "_GRACE_SECONDS", 3600.0)
    slow = [await begin(server, b"a") for _ in range(20)]
    assert await post(server, b"a" * LARGEST) == (200, str(LARGEST))
    for reader, writer in slow:
        writer.write(b"a" * (LARGEST - 1))
        assert b" 200 " in await reader.readline()
        writer.close()


async def test_the_oldest_incomplete_body_is_refused_if_others_need_its_memory(
    server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before some seconds, in which it may end; without need it is received."""
    monkeypatch.setattr(request_bodies, "_GRACE_SECONDS", 1.0)
    started = time.monotonic()
    slow = [await begin(server, b"a" * (LARGEST - 1)) for _ in range(2)]
    assert await post(server, b"a" * LARGEST) == (200, str(LARGEST))
    assert time.monotonic() - started >= 1
    (oldest, first), (other, second) = slow
    assert b" 408 " in await oldest.readline()
    second.write(b"a")
    assert b" 200 " in await other.readline()
    for writer in (first, second):
        writer.close()


async def test_bodies_at_the_same_time_wait_for_each_other(server: Listener) -> None:
    """All are received, though not all fit the memory."""
    found = await asyncio.gather(*(post(server, b"a" * LARGEST) for _ in range(8)))
    assert found == [(200, str(LARGEST))] * 8


async def test_the_body_of_a_request_uses_no_memory_while_its_response_is_streamed(
    server: Listener, busy: Busy
) -> None:
    """The client of such a response may read it for hours, or never."""
    busy.ended.clear()
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        url = f"http://{LOOPBACK}:{server.port}/"
        streams = [await session.get(url, data=b"a" * LARGEST) for _ in range(4)]
        posted = asyncio.create_task(post(server, b"a" * LARGEST))
        while not busy.answering:  # noqa: ASYNC110 the server sends no events
            await asyncio.sleep(0.01)
        busy.ended.set()
        assert await posted == (200, str(LARGEST))
        for each in streams:
            await each.read()


async def test_complete_bodies_use_memory_until_they_are_answered(
    server: Listener, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for them without being refused, however long an answer takes."""
    monkeypatch.setattr(request_bodies, "_GRACE_SECONDS", 0.1)
    busy.ended.clear()
    posts = [asyncio.create_task(post(server, b"a" * LARGEST)) for _ in range(8)]
    async with asyncio.timeout(60):
        while busy.answering < ROOM // LARGEST:  # noqa: ASYNC110 the server sends no events
            await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    assert busy.most == ROOM // LARGEST
    busy.ended.set()
    assert await asyncio.gather(*posts) == [(200, str(LARGEST))] * 8


async def test_a_body_beyond_the_maximum_is_refused(server: Listener) -> None:
    """Also if its length was not announced, and its memory is free again."""
    for _ in range(4):
        assert (await post(server, b"a" * (LARGEST + 1)))[0] == 413
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + f"{LARGEST + 1:x}\r\n".encode() + b"a" * (LARGEST + 1))
        assert b" 413 " in await reader.readline()
        writer.close()
    assert await post(server, b"a" * LARGEST) == (200, str(LARGEST))
