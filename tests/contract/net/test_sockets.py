"""Start and end of a listener's connections, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web

from operator_runner.net import sockets as module
from operator_runner.net.certificates import server_context
from operator_runner.net.sockets import Connections, Listener, large_share, small_share

LOOPBACK = "127.0.0.1"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def _answer(_: web.BaseRequest) -> web.Response:
    return web.Response(text="here")


@asynccontextmanager
async def listening(
    context: ssl.SSLContext | None = None, host: str = LOOPBACK
) -> AsyncIterator[int]:
    """Give the port of a server."""
    runner = web.ServerRunner(web.Server(_answer), shutdown_timeout=0.1)
    await runner.setup()
    listener = Listener(runner, context)
    try:
        listener.open(host, 0)
        yield listener.port
    finally:
        await listener.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Give the file for the server's certificate."""
    return tmp_path / "ca.crt"


@pytest.fixture
def context(authority: Path) -> ssl.SSLContext:
    """Speak TLS."""
    return server_context(authority, [LOOPBACK])


def has_ended(client: socket.socket) -> bool:
    """Return whether the server has closed the connection; remaining bytes are ignored."""
    client.setblocking(False)
    try:
        while client.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


async def test_the_end_does_not_wait_for_an_open_connection(
    context: ssl.SSLContext, authority: Path
) -> None:
    """The server does not wait for it indefinitely: it closes its connections at its end."""
    trust = ssl.create_default_context(cafile=authority)

    def talk(port: int) -> socket.socket:
        with closing(socket.create_connection((LOOPBACK, port))) as plain:
            silent = socket.socket(fileno=socket.dup(plain.fileno()))
            with trust.wrap_socket(plain, server_hostname=LOOPBACK) as secured:
                secured.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert secured.recv(4096).startswith(b"HTTP/1.1 200")
        return silent

    async with listening(context) as port:
        client = await asyncio.to_thread(talk, port)
        assert not has_ended(client)
    with client:
        assert has_ended(client)


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"])
async def test_an_unfinished_handshake_ends_with_the_server(
    context: ssl.SSLContext, first: bytes
) -> None:
    """It ends with the server; it does not become a leaked connection."""
    async with listening(context) as port:
        client = await asyncio.to_thread(socket.create_connection, (LOOPBACK, port))
        client.sendall(first)
    with client:
        await asyncio.sleep(0)
        assert has_ended(client)


async def test_every_interface_has_the_same_port() -> None:
    """Without a host IPv4 and IPv6 are served, wherever the machine has them."""
    async with listening(host="") as port:
        for family, address in ((socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1")):
            if family == socket.AF_INET6 and not _has_ipv6():
                continue
            _, writer = await asyncio.open_connection(address, port, family=family)
            writer.close()
            await writer.wait_closed()


async def test_a_port_that_is_in_use_on_one_address_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`localhost` has two addresses, and the kernel chooses a port that is free on the first."""
    addresses = ("127.0.0.1", "127.0.0.2")
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    others: list[socket.socket] = []
    create_server = socket.create_server

    def create(address: tuple[str, int], **options: Any) -> socket.socket:
        if address[1] and not others:
            others.append(create_server(address, **options))
        return create_server(address, **options)

    monkeypatch.setattr(socket, "create_server", create)
    async with listening(host="localhost") as port:
        for address in addresses:
            with socket.socket() as client:
                client.settimeout(60)
                await asyncio.to_thread(client.connect, (address, port))
    (other,) = others
    with other:
        assert other.getsockname()[1] != port


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@asynccontextmanager
async def bounded(connections: Connections, answer: Handler) -> AsyncIterator[int]:
    """Give the port of a server whose open connections are bounded."""

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        with connections.serving(request.protocol):
            return await answer(request)

    runner = web.ServerRunner(web.Server(serve), shutdown_timeout=0.1)
    await runner.setup()
    listener = Listener(runner, connections=connections)
    try:
        listener.open(LOOPBACK, 0)
        yield listener.port
    finally:
        await listener.stop()


async def send_request(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return the data until the server closes the connection."""
    async with asyncio.timeout(60):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_a_new_request_takes_the_place_of_the_longest_idle_connection() -> None:
    """Clients that open connections and send nothing, or half a request, do not block others."""
    with structlog.testing.capture_logs() as logged:
        async with bounded(Connections(4), _answer) as port:
            silent = [await asyncio.open_connection(LOOPBACK, port) for _ in range(20)]
            for _, writer in silent[1::2]:
                writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
            reader, client = await send_request(port)
            async with asyncio.timeout(60):
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            for slow, _ in silent[:16]:
                assert await ended(slow) == b""
            for _, writer in [*silent, (reader, client)]:
                writer.close()
    [warning] = [line for line in logged if line["log_level"] == "warning"]
    assert (warning["port"], warning["limit"]) == (port, 4)
    assert "ulimit -n" in warning["hint"]


async def test_a_request_that_is_served_keeps_its_connection() -> None:
    """However long an answer takes, it is not cut; where all are busy, new ones are closed."""
    finish = asyncio.Event()

    async def wait(_: web.BaseRequest) -> web.Response:
        await finish.wait()
        return web.Response(text="here")

    connections = Connections(4)
    async with bounded(connections, wait) as port:
        busy = [await send_request(port) for _ in range(4)]
        async with asyncio.timeout(60):
            while sum(one.serving for one in connections) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        refused, client = await asyncio.open_connection(LOOPBACK, port)
        assert await ended(refused) == b""
        client.close()
        finish.set()
        async with asyncio.timeout(60):
            for reader, writer in busy:
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX-Slow: ", b"\x16\x03\x01"])
async def test_an_incomplete_request_is_closed_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Its connection is closed at the deadline, even if a part was received."""
    monkeypatch.setattr(module, "FIRST_REQUEST_SECONDS", 0.2)
    async with bounded(Connections(), _answer) as port:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(sent)
        answered = await ended(reader)
        assert answered == b"" or answered.startswith(b"HTTP/1.0 400")
        writer.close()


async def test_a_client_that_leaves_during_its_request_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A neighbour in the network fills no log with errors, whose tracebacks are a kilobyte each."""
    left = asyncio.Event()

    async def read(request: web.BaseRequest) -> web.Response:
        try:
            await request.read()
        finally:
            left.set()
        return web.Response()

    # What other tests have left logs errors when it is collected.
    gc.collect()
    caplog.clear()
    async with bounded(Connections(), read) as port:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\npart")
        await writer.drain()
        writer.transport.abort()
        async with asyncio.timeout(60):
            await left.wait()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was used has longer, since its client may come again."""
    monkeypatch.setattr(module, "FIRST_REQUEST_SECONDS", 3600)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.2)
    async with bounded(Connections(), _answer) as port:
        reader, writer = await send_request(port)
        assert (await ended(reader)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_slow_handshake_is_closed(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops after the start of a TLS handshake does not block others."""
    monkeypatch.setattr(module, "FIRST_REQUEST_SECONDS", 0.2)
    async with listening(context) as port:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"\x16\x03\x01")
        assert await ended(reader) == b""
        writer.close()


@pytest.mark.parametrize(
    ("descriptors", "small", "large"),
    [(16, 4, 4), (256, 16, 32), (1024, 64, 128), (2**20, 512, 4096)],
)
def test_the_shares_of_all_servers_leave_a_third_of_the_descriptors(
    descriptors: int, small: int, large: int
) -> None:
    """Three small servers, and two large ones of which one doubles, leave a third to the rest."""
    assert (small_share(descriptors), large_share(descriptors)) == (small, large)
    if descriptors > 64:
        assert 3 * small + 3 * large <= descriptors * 2 / 3
