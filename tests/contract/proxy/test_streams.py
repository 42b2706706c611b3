"""Bodies and answers pass as they come, seen from both ends of the proxy."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
import pytest
from yarl import URL

from .conftest import SECONDS, Recorder, Run, Serve

Upstream = Callable[..., Awaitable[Run]]
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def client(run: Run) -> AsyncIterator[aiohttp.ClientSession]:
    """Give an HTTP client with the run's token."""
    server, authority, token = run.server
    async with (
        asyncio.timeout(SECONDS),
        aiohttp.ClientSession(
            server,
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority)),
            auto_decompress=False,
        ) as session,
    ):
        yield session


def chunk(data: bytes) -> bytes:
    """Return a chunk of the chunked encoding; empty data ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """Return a whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def serving(body: bytes) -> Serve:
    """Return a server that answers one request with this body as JSON."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(answer(body, "Content-Type: application/json", "Connection: close"))
        await writer.drain()
        await reader.read()

    return serve


async def test_the_operators_token_replaces_that_of_the_run(upstream: Upstream) -> None:
    """The API server gets the operator's token and never the run's; paths are unchanged."""
    heads: list[str] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        heads.append(head)
        writer.write(answer(b"{}"))

    run = await upstream(serve)
    path = "/api/v1/namespaces/n/pods?labelSelector=a%20in%20(b)&fieldSelector=x%2Fy%3D1"
    async with client(run) as http, http.get(URL(path, encoded=True)) as response:
        assert response.status == 200
    assert heads[0].startswith(f"GET {path} HTTP/1.1\r\n")
    assert "Authorization: Bearer operator\r\n" in heads[0]
    assert run.server[2] not in heads[0]


async def test_responses_pass_through_unchanged(upstream: Upstream) -> None:
    """Status, warnings, content coding and body are those of the API server."""
    packed = gzip.compress(b'{"kind": "Status"}')

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: str) -> None:
        headers = ("Content-Encoding: gzip", 'Warning: 299 - "a"', 'Warning: 299 - "b"')
        writer.write(answer(packed, *headers, status="418 Teapot"))

    async with client(await upstream(serve)) as http, http.get("/api") as response:
        assert (response.status, response.reason) == (418, "Teapot")
        assert response.headers.getall("Warning") == ['299 - "a"', '299 - "b"']
        assert await response.read() == packed


async def test_events_pass_one_by_one(upstream: Upstream) -> None:
    """Each line of a watch arrives before the next one is sent."""
    requested = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: str) -> None:
        writer.write(ENDLESS)
        for number in range(3):
            writer.write(chunk(b'{"event": %d}\n' % number))
            await requested.wait()
            requested.clear()
        writer.write(chunk(b""))

    run = await upstream(serve)
    async with client(run) as http, http.get("/api/v1/pods?watch=true") as response:
        for number in range(3):
            assert json.loads(await response.content.readline()) == {"event": number}
            requested.set()
        assert await response.content.read() == b""


async def test_a_stream_ends_when_its_client_hangs_up(upstream: Upstream) -> None:
    """The API server's side ends when the client's does."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(ENDLESS + chunk(b"first\n"))
        await reader.read()
        ended.set()

    run = await upstream(serve)
    async with client(run) as http:
        async with http.get("/api/v1/pods?watch=true") as response:
            assert await response.content.readline() == b"first\n"
        async with asyncio.timeout(SECONDS):
            await ended.wait()


async def test_an_answer_that_breaks_off(upstream: Upstream) -> None:
    """A client is not led to believe that half an answer is all of it."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: str) -> None:
        writer.write(ENDLESS + chunk(b"half"))

    run = await upstream(serve)
    async with client(run) as http, http.get("/api/v1/pods") as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_a_closed_connection_is_reported_as_a_status(upstream: Upstream) -> None:
    """For a connection that closes without a response, the client gets a Status."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: str) -> None:
        writer.close()

    run = await upstream(serve)
    async with client(run) as http, http.post("/api/v1/namespaces/n/pods", json={}) as response:
        status = await response.json()
        assert (response.status, status["code"]) == (502, 502)
        assert "no response from the API server" in status["message"]
        assert "Retry-After" not in response.headers


async def test_uploads_are_streamed(upstream: Upstream) -> None:
    """A body that needs no owner is sent on while it is still coming."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        seen.set_result(await reader.readuntil(b"first"))
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(answer(b"{}"))

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        assert b"first" in await seen
        yield b"second"

    seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    path = "/api/v1/namespaces/n/services/s/proxy/upload"
    async with client(await upstream(serve)) as http, http.post(path, data=body()) as response:
        assert response.status == 200


async def test_writes_are_reported_before_their_response(
    upstream: Upstream, recorder: Recorder
) -> None:
    """A write is reported before its response ends, even if its kind must be discovered."""
    status = b'{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}'
    pods = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["delete"]}

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        if head.startswith("DELETE"):
            writer.write(answer(status, "Content-Type: application/json"))
        elif head.startswith("GET /api/v1 "):
            # Time enough for an answer that is not held back.
            for _turn in range(50):
                await asyncio.sleep(0)
            listed = json.dumps({"resources": [pods]}).encode()
            writer.write(answer(listed, "Connection: close"))
        else:
            writer.write(answer(b"{}", "Connection: close"))

    run = await upstream(serve)
    async with client(run) as http, http.delete("/api/v1/namespaces/n/pods/p") as response:
        assert await response.read() == status
        written = list(recorder.written)
    assert [(str(ref), version, verb) for ref, version, verb in written] == [
        ("Pod n/p", "", "delete")
    ]


async def test_bodies_that_cannot_get_an_owner(upstream: Upstream) -> None:
    """CBOR is refused so that its clients fall back to JSON; too large bodies are refused."""

    async def serve(_: asyncio.StreamReader, __: asyncio.StreamWriter, head: str) -> None:
        raise AssertionError(head)

    run = await upstream(serve)
    for kind, body, code in (
        ("application/cbor", b"\xa0", 415),
        ("application/json", b" " * (4 * 1024 * 1024 + 1), 413),
    ):
        headers = {"Content-Type": kind}
        async with (
            client(run) as http,
            http.post("/api/v1/namespaces/n/pods", data=BytesIO(body), headers=headers) as response,
        ):
            assert (response.status, (await response.json())["code"]) == (code, code)


async def test_large_objects_are_owned_and_arrive_whole(upstream: Upstream) -> None:
    """An object as large as the API server takes them gets its owner and arrives whole."""
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        length = int(head.lower().partition("content-length: ")[2].split()[0])
        body = json.loads(await reader.readexactly(length))
        sizes.append(len(body["data"]["a"]))
        assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
        writer.write(answer(b"{}"))

    body = BytesIO(json.dumps({"data": {"a": "x" * 3_000_000}}).encode())
    path = "/api/v1/namespaces/team/configmaps"
    async with (
        client(await upstream(serve)) as http,
        http.post(path, data=body, headers={"Content-Type": "application/json"}) as response,
    ):
        assert response.status == 200
    assert sizes == [3_000_000]


async def test_a_client_that_waits_to_be_invited(upstream: Upstream) -> None:
    """`Expect: 100-continue`, as curl sends it with large bodies, is answered."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        await reader.readuntil(b"}")
        writer.write(answer(b"{}"))

    run = await upstream(serve)
    async with (
        client(run) as http,
        http.patch("/api/v1/namespaces/n/pods/p", json={}, expect100=True) as response,
    ):
        assert response.status == 200
