"""Bodies that are made to hurt: the proxy refuses them with a text, and serves others meanwhile."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from contextlib import AsyncExitStack, suppress
from io import BytesIO
from pathlib import Path

import pytest
import structlog

from operator_runner.core.json_bounds import MAX_DEPTH, height
from operator_runner.kube.session import connect
from operator_runner.net.sockets import Connections
from operator_runner.proxy import server as proxy_module
from operator_runner.proxy.response_tracker import MAX_BODY_BYTES

from .conftest import WATCH, Recorder, Run, config_map, proxied, source
from .test_streams import ENDLESS, Upstream, answer, chunk, client, serving

PODS = "/api/v1/namespaces/team/pods"
LAUGHS = b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 9)
)
LARGE = 3 * 1024 * 1024


async def _ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
    writer.write(answer(b"{}", "Connection: close"))
    await writer.drain()
    await reader.read()


async def _longest_step(stop: asyncio.Event) -> float:
    """Return the most CPU seconds that the event loop's thread spent between two of its turns.

    Not the time of a clock: other processes may keep this one waiting.
    """
    longest, last = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0.005)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest


async def _post(run: Run, kind: str, body: bytes, path: str = PODS) -> tuple[int, str]:
    headers = {"Content-Type": kind}
    async with (
        client(run) as http,
        http.post(path, data=BytesIO(body), headers=headers) as response,
    ):
        status = await response.json()
        return response.status, status.get("message", "")


@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        ("application/yaml", LAUGHS, "aliases"),
        ("application/json", b"[" * 100_000, "nested too deep"),
        ("application/yaml", b"- " * 100_000, "nested deeper"),
        ("application/yaml", b"? " * (LARGE // 2), "YAML key"),
        ("application/yaml", b"[" + b"1," * (LARGE // 2) + b"]", "parts"),
        ("application/vnd.kubernetes.protobuf", b"k8s\0" + b"\x18\x01" * (LARGE // 2), "fields"),
    ],
)
async def test_a_hostile_body_is_a_400_with_a_reason(
    upstream: Upstream, kind: str, body: bytes, problem: str
) -> None:
    """It is a 400 whose message has the reason, and the event loop is not blocked."""
    run = await upstream(_ok)
    stop = asyncio.Event()
    step = asyncio.create_task(_longest_step(stop))
    code, message = await _post(run, kind, body)
    stop.set()
    assert (code, problem in message) == (400, True), message
    # A loop that decodes these itself takes several seconds, or the process crashes.
    assert await step < 2


async def test_bodies_without_an_owner_are_forwarded(upstream: Upstream) -> None:
    """The API server answers for bodies that the proxy has no need to read."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        length = int(head.lower().partition("content-length: ")[2].split()[0])
        seen.append(await reader.readexactly(length))
        await _ok(reader, writer, head)

    run = await upstream(serve)
    deep = b"[" * 100_000
    async with client(run) as http:
        merge = {"Content-Type": "application/merge-patch+json"}
        async with http.patch(f"{PODS}/p", data=deep, headers=merge) as response:
            assert response.status == 200
        json_type = {"Content-Type": "application/json"}
        async with http.delete(f"{PODS}/p", data=deep, headers=json_type) as response:
            assert response.status == 200
    assert seen == [deep, deep]


async def test_a_deeply_nested_answer_arrives_whole(upstream: Upstream, recorder: Recorder) -> None:
    """The run gets an object whole, and its owner is known, however deep the rest of it is."""
    deep = b"[" * 5000 + b"]" * 5000
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "uid-1"}
    metadata = {"name": "p", "namespace": "team", "ownerReferences": [reference]}
    head = b'{"apiVersion": "v1", "kind": "Pod", "metadata": ' + json.dumps(metadata).encode()
    body = head + b', "spec": ' + deep + b"}"

    async with client(await upstream(serving(body))) as http, http.get(f"{PODS}/p") as response:
        assert (response.status, await response.read()) == (200, body)
    assert [str(dependent) for _, dependent in recorder.seen] == ["Pod team/p"]


@pytest.mark.parametrize("size", [10, 5 * 1024 * 1024], ids=["buffered", "beyond-the-buffer"])
async def test_a_deep_object_in_a_list_does_not_affect_others(
    upstream: Upstream, size: int
) -> None:
    """Values that are nested too deep are empty, one warning names the object, others are whole."""
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    other = config_map("other", "team", text='[{"\\' * 200, filler="x" * size)
    head = b'{"kind":"ConfigMapList","apiVersion":"v1","items":['
    hostile = b'{"metadata":{"name":"hostile","namespace":"team"},"spec":' + deep + b"}"
    body = head + hostile + b"," + json.dumps(other).encode() + b"]}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(answer(body, "Content-Type: application/json"))
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        await serve(reader, writer, "")

    path = "/api/v1/namespaces/team/configmaps"
    run = await upstream(serve)
    with structlog.testing.capture_logs() as lines:
        async with client(run) as http:
            for _ in range(2):
                async with http.get(path) as response:
                    shown, kept = json.loads(await response.read())["items"]
                    assert (shown["metadata"]["name"], height(shown)) == ("hostile", MAX_DEPTH + 1)
                    assert kept == other
    warned = [line for line in lines if line["log_level"] == "warning"]
    assert [line["event"] for line in warned] == ["Emptied values that are nested too deep"]
    assert warned[0]["run_id"] == "run-1"
    assert ("team/hostile" in str(warned[0])) == (size < MAX_BODY_BYTES)


async def test_a_malformed_chunked_body_is_a_400(upstream: Upstream) -> None:
    """Invalid chunks are a 400 with a Status, whether the body is read or passed on."""
    run = await upstream(_ok)
    _, _, token = run.server
    for path in (PODS, f"{PODS}/p/eviction"):
        reader, writer = await _connected(run)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n".encode())
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"{") + b"zz\r\n")
        await writer.drain()
        answered = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert " 400 " in answered.partition("\r\n")[0], answered
        writer.close()


async def _connected(run: Run) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    server, authority, _ = run.server
    port = int(server.rpartition(":")[2])
    trust = ssl.create_default_context(cafile=authority)
    return await asyncio.open_connection("127.0.0.1", port, ssl=trust)


async def test_one_run_does_not_block_others(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with more watches than its share gets a 429 for the rest; another one is answered."""
    monkeypatch.setattr(proxy_module, "Connections", lambda: Connections(16))
    monkeypatch.setattr(proxy_module, "_QUEUE_TIMEOUT_SECONDS", 0.2)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(ENDLESS if b"watch=1" in head else answer(b"{}", "Connection: close"))
            await writer.drain()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    file = tmp_path / "upstream.kubeconfig"
    file.write_text(source(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    connection = await connect(file, user_agent="operator-runner/test")
    body = config_map("owner", "team")
    body["metadata"]["uid"] = "uid-1"
    async with proxied(connection, recorder) as proxy, AsyncExitStack() as stack:
        greedy, other = (
            _run(tmp_path / name, stack.enter_context(proxy.grant(body, WATCH, name)))
            for name in ("run-1", "run-2")
        )
        http = await stack.enter_async_context(client(greedy))
        answers = [await http.get("/api/v1/pods?watch=1") for _ in range(6)]
        assert [each.status for each in answers] == [200] * 4 + [429] * 2
        assert answers[-1].headers["Retry-After"] == "1"
        assert "requests of this run" in (await answers[-1].json())["message"]
        async with client(other) as others, others.get("/api/v1/pods") as response:
            assert response.status == 200
        for each in answers:
            each.close()
    server.close()
    await connection.close()


def _run(file: Path, kubeconfig: str) -> Run:
    file.write_text(kubeconfig)
    return Run(file, file.parent)
