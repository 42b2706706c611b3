"""How a listener begins and ends connections, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from aiohttp import web

from operator_runner.kube.servingcert import server_context
from operator_runner.sockets import Listener

LOOPBACK = "127.0.0.1"


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
    """Tell whether the server has closed the connection: what it still said is passed over."""
    client.setblocking(False)
    try:
        while client.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


async def test_a_client_that_never_says_goodbye(context: ssl.SSLContext, authority: Path) -> None:
    """The server does not wait for it for ever: its connections are closed when it has ended."""
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
async def test_a_handshake_under_way(context: ssl.SSLContext, first: bytes) -> None:
    """It ends with the server; it does not become a connection that nobody closes."""
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


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
