"""Upgraded connections, as exec, attach and port-forward use them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest

from .conftest import SECONDS, Run, Serve

Upstream = Callable[[Serve], Awaitable[Run]]
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %b\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)


async def dial(
    run: Run, method: str, protocol: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Request an upgrade; return the connection and the head of the response."""
    server, authority, token = run.server
    context = ssl.create_default_context(cafile=authority)
    port = int(server.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    lines = (
        f"{method} /api/v1/namespaces/n/pods/p/exec?command=sh HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Connection: Upgrade",
        f"Upgrade: {protocol}",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "",
        "",
    )
    writer.write("\r\n".join(lines).encode())
    async with asyncio.timeout(SECONDS):
        return reader, writer, await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(("method", "protocol"), [("POST", "SPDY/3.1"), ("GET", "websocket")])
async def test_bytes_pass_both_ways(upstream: Upstream, method: str, protocol: str) -> None:
    """After the 101 anything passes in both directions, more than any buffer holds included."""
    heads: list[str] = []
    large = bytes(range(256)) * 8192

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        heads.append(head)
        writer.write(SWITCH % protocol.encode() + b"hello")
        writer.write(await reader.readexactly(len(large)))
        await writer.drain()

    run = await upstream(serve)
    reader, writer, head = await dial(run, method, protocol)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert f"Upgrade: {protocol}\r\n".encode() in head
    assert b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in head
    async with asyncio.timeout(SECONDS):
        assert await reader.readexactly(5) == b"hello"
        writer.write(large)
        # Both ends close when the server has sent everything.
        assert await reader.read() == large
    writer.close()
    assert "Authorization: Bearer operator\r\n" in heads[0]
    assert "Connection: Upgrade\r\n" in heads[0]
    assert f"Upgrade: {protocol}\r\n" in heads[0]


async def test_a_tunnel_ends_when_its_client_leaves(upstream: Upstream) -> None:
    """When the client closes, the API server's side is closed."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(SWITCH % b"SPDY/3.1")
        assert await reader.read() == b"bye"
        ended.set()

    _, writer, _ = await dial(await upstream(serve), "POST", "SPDY/3.1")
    writer.write(b"bye")
    await writer.drain()
    writer.close()
    async with asyncio.timeout(SECONDS):
        await ended.wait()


async def test_a_refused_upgrade_is_passed_on(upstream: Upstream) -> None:
    """The API server's refusal reaches the client, whose next request is served as usual."""
    refused = (
        b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: str) -> None:
        writer.write(refused)

    reader, writer, head = await dial(await upstream(serve), "POST", "SPDY/3.1")
    assert head.startswith(b"HTTP/1.1 403 ")
    async with asyncio.timeout(SECONDS):
        assert await reader.readexactly(2) == b"{}"
    writer.close()
