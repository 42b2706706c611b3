"""Writes of runs while the Lease is held and after: what reaches a real API server."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path

import aiohttp
import pytest

from operator_runner.core.fencing import Fences, LeaseTerm
from operator_runner.core.model import Json, ObjectRef
from operator_runner.kube.api import Api
from operator_runner.kube.session import Connection
from operator_runner.proxy.server import Proxy
from tests.contract.kube.waiting import until
from tests.contract.proxy.webhook import Webhook
from tests.fakes.term import Clock

from .conftest import SECONDS, WATCH, Recorder, Run, config_map, proxied
from .test_streams import answer, client
from .test_tunnel import SWITCH, dial

JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket"}
LARGE = 2 * 1024 * 1024
Upstream = Callable[..., Awaitable[Run]]
Begin = Callable[[], AbstractContextManager[Run]]


@pytest.fixture
async def proxy(connection: Connection, recorder: Recorder, fences: Fences) -> AsyncIterator[Proxy]:
    """Serve the proxy of a leader in front of the real API server."""
    async with proxied(connection, recorder, fences=fences, anonymous=[WATCH]) as served:
        yield served


@pytest.fixture
def path(namespace: str) -> str:
    """Return the path of the ConfigMaps of the test."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def begin(proxy: Proxy, fences: Fences, owner: Json, tmp_path: Path) -> Begin:
    """Give a function that begins a run of the owner, as a reconcile does."""

    @contextmanager
    def begin() -> Iterator[Run]:
        file = tmp_path / "kubeconfig"
        with fences.reconciling(ObjectRef.of(owner)), proxy.grant(owner, WATCH, "run-1") as text:
            file.write_text(text)
            yield Run(file, tmp_path)

    return begin


@pytest.fixture
def run(begin: Begin) -> Iterator[Run]:
    """Give a run of the owner."""
    with begin() as run:
        yield run


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """Return the message of a refused request."""
    status = await response.json()
    assert (response.status, status["reason"]) == (403, "Forbidden"), status
    return str(status["message"])


async def _names(connection: Connection, path: str) -> dict[str, Json]:
    """Return the data of the ConfigMaps by name; Kubernetes makes one in each namespace."""
    items = (await Api(connection).request("GET", path))["items"]
    names = {item["metadata"]["name"]: item.get("data", {}) for item in items}
    names.pop("kube-root-ca.crt", None)
    return names


async def test_a_run_writes_while_the_lease_is_held(
    run: Run, connection: Connection, path: str, namespace: str
) -> None:
    """The API server accepts each kind of write with its time limit."""
    owner, made = f"{path}/owner", f"{path}/made"
    new, applied = config_map("made", namespace), config_map("applied", namespace, a="1")
    async with client(run) as http:
        for request, code in [
            (http.post(path, json=new), 201),
            (http.put(made, json={**new, "data": {"a": "1"}}), 200),
            (http.patch(owner, json={"data": {"a": "1"}}, headers=MERGE), 200),
            (http.patch(f"{path}/applied?fieldManager=a", json=applied, headers=APPLY), 201),
            (http.delete(f"{made}?timeout=10s"), 200),
        ]:
            async with request as response:
                assert response.status == code, await response.text()
    names = await _names(connection, path)
    assert (names["owner"], names["applied"], "made" in names) == ({"a": "1"}, {"a": "1"}, False)


async def test_after_the_renew_deadline_every_write_is_refused(
    run: Run, connection: Connection, clock: Clock, path: str, namespace: str
) -> None:
    """The Lease is not expired yet: the rest of it is for writes that are in flight."""
    before = await _names(connection, path)
    pod = f"/api/v1/namespaces/{namespace}/pods/web"
    clock.now += 10
    async with client(run) as http:
        for request in [
            http.post(path, json=config_map("new", namespace)),
            http.post(f"{path}?dryRun=All", json=config_map("new", namespace)),
            http.put(f"{path}/owner", json=config_map("owner", namespace, a="1")),
            http.patch(f"{path}/owner", json={"data": {"a": "1"}}, headers=MERGE),
            http.patch(f"{path}/x?fieldManager=a", json=config_map("x"), headers=APPLY),
            http.delete(f"{path}/owner"),
            http.delete(path),
            http.post(f"{pod}/eviction", json={}),
            http.post(f"{pod}/exec?command=sh"),
            http.get(f"{pod}/attach"),
            http.get(f"{pod}/portforward"),
            http.get("/api/v1/nodes/n/proxy/exec/a/b/c?watch=true", headers=WEBSOCKET),
        ]:
            async with request as response:
                message = await _refusal(response)
                assert "Lease team/web" in message
                assert "--leader-elect-lease-duration" in message
    assert await _names(connection, path) == before


async def test_reads_are_answered_after_the_term(run: Run, clock: Clock, path: str) -> None:
    """A stale read changes nothing, so that a role can end in an orderly way."""
    clock.now += 60
    async with client(run) as http:
        for url in (f"{path}/owner", path, f"{path}?watch=1&timeoutSeconds=1", "/version"):
            async with http.get(url) as response:
                assert response.status == 200
                await response.read()


async def test_a_run_of_an_earlier_epoch_is_refused_and_a_new_one_is_not(
    begin: Begin, term: LeaseTerm, path: str
) -> None:
    """The process leads again, but another replica may have led and written in between."""
    patch = {"data": {"a": "1"}}
    with begin() as run:
        term.extend(("uid", 2), term.now())
        async with (
            client(run) as http,
            http.patch(f"{path}/owner", json=patch, headers=MERGE) as response,
        ):
            assert "no longer holds it as it did when the run began" in await _refusal(response)
    with begin() as run:
        async with (
            client(run) as http,
            http.patch(f"{path}/owner", json=patch, headers=MERGE) as response,
        ):
            assert response.status == 200


async def test_a_body_is_not_sent_to_its_end_after_the_term(
    run: Run, connection: Connection, clock: Clock, path: str
) -> None:
    """The term ends between two chunks of a streamed body, of which the rest is not sent."""
    patch = json.dumps({"data": {"a": "x" * (LARGE // 4)}}).encode()

    async def body() -> AsyncIterator[bytes]:
        yield patch[: LARGE // 8]
        clock.now += 10
        yield patch[LARGE // 8 :]

    async with (
        client(run) as http,
        http.patch(f"{path}/owner", data=body(), headers=MERGE) as response,
    ):
        assert "Lease team/web" in await _refusal(response)
    assert await _names(connection, path) == {"owner": {}}


async def test_a_term_that_ends_while_the_owner_is_checked(
    upstream: Upstream, clock: Clock, fences: Fences
) -> None:
    """The write is checked again after the requests that decide on it."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        while True:
            heads.append(head.partition(" ")[0])
            clock.now += 10
            writer.write(answer(b'{"metadata": {}}'))
            head = (await reader.readuntil(b"\r\n\r\n")).decode()

    run = await upstream(serve, fences=fences)
    async with (
        client(run) as http,
        http.put("/api/v1/namespaces/team/configmaps/a", json=config_map("a")) as response,
    ):
        assert "Lease team/web" in await _refusal(response)
    assert heads == ["GET"]


async def test_a_stream_is_closed_at_the_next_bytes_of_the_run(
    upstream: Upstream, clock: Clock, fences: Fences
) -> None:
    """A shell in a Pod gets no command of a former leader."""
    received: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(SWITCH % b"websocket")
        received.append(await reader.readexactly(5))
        writer.write(b"first")
        received.append(await reader.read())
        ended.set()

    run = await upstream(serve, fences=fences)
    reader, writer, head = await dial(run, "GET", "websocket")
    assert head.startswith(b"HTTP/1.1 101 ")
    writer.write(b"hello")
    async with asyncio.timeout(SECONDS):
        assert await reader.readexactly(5) == b"first"
        clock.now += 10
        writer.write(b"rm -r /")
        assert await reader.read() == b""
        await ended.wait()
    assert received == [b"hello", b""]
    writer.close()


async def test_programs_beside_the_runs_are_not_fenced(
    proxy: Proxy, term: LeaseTerm, path: str, namespace: str
) -> None:
    """They have no run that another replica repeats; a standby serves them as ansible-operator."""
    term.end()
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{proxy.address.port}") as http,
        http.post(path, json=config_map("beside", namespace)) as response,
    ):
        assert response.status == 201


@pytest.fixture
async def webhook(tmp_path: Path, connection: Connection, namespace: str) -> AsyncIterator[Webhook]:
    """Register a webhook that reviews the ConfigMaps of the test's namespace."""
    webhook = Webhook(tmp_path)
    await webhook.start()
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    name = f"{namespace}.example.com"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    label = {"kubernetes.io/metadata.name": namespace}
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": name,
                "rules": [rule | {"operations": ["CREATE"]}],
                "clientConfig": webhook.client("/admit"),
                "namespaceSelector": {"matchLabels": label},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 30,
            }
        ],
    }
    async with AsyncExitStack() as stack:
        stack.push_async_callback(webhook.stop)
        await Api(connection).request("POST", path, body=body)
        stack.push_async_callback(Api(connection).request, "DELETE", f"{path}/{name}")
        yield webhook


@pytest.mark.parametrize("term", [(6.0, 2.0)], indirect=True)
async def test_a_slow_write_is_not_carried_out_after_the_lease(
    run: Run, connection: Connection, webhook: Webhook, path: str, namespace: str
) -> None:
    """The API server ends it at its time limit, even if this process is frozen by then."""
    api = Api(connection)
    numbers = itertools.count()

    async def is_called() -> bool:
        await api.request("POST", path, body=config_map(f"probe-{next(numbers)}", namespace))
        return bool(webhook.admitted)

    await until(is_called, SECONDS)
    webhook.hold("slow")
    body = config_map("slow", namespace)
    async with client(run) as http, http.post(path, json=body) as response:
        # 504, or a closed connection where its time limit finds it writing just that.
        assert response.status in {502, 504}, await response.text()
    # Kubernetes makes a ConfigMap in each new namespace, perhaps only now.
    assert set(webhook.admitted) - {"kube-root-ca.crt"} == {"slow"}
    webhook.release.set()
    # Reviewed after the first one, and stored after it if that were stored at all.
    await api.request("POST", path, body=config_map("slower", namespace))
    names = await _names(connection, path)
    assert ("slow" in names, "slower" in names) == (False, True)
