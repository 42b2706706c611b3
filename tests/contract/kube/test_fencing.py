"""The operator's own writes while the Lease is held and after, on a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fence, Fences, LeaseTerm
from operator_runner.core.model import EventSpec, Json, ObjectRef
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection, connect
from operator_runner.net.certificates import server_context
from tests.contract.kube.scripted import kubeconfig
from tests.fakes.term import Clock
from tests.support.kubectl import Kubectl

_SECONDS = 60.0
SPEC = EventSpec("Failed", "task x: no", warning=True)


@pytest.fixture
def cluster(api: Api, discovery: Discovery, fences: Fences) -> KubeCluster:
    """Return the cluster as the reconcilers of a leader use it."""
    return KubeCluster(api, discovery, fences)


@pytest.fixture
def path(namespace: str) -> str:
    """Return the path of a Pod."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
async def pod(api: Api, path: str) -> Json:
    """Make a Pod, which has a status; nothing runs it."""
    container = {"name": "a", "image": "quay.io/example/a"}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    metadata = {"name": "a"}
    await api.request(
        "POST",
        path.replace("pods", "serviceaccounts"),
        body={"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
    )
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return await api.request("POST", path, body=body | {"spec": {**spec, "serviceAccount": "a"}})


async def _write(cluster: KubeCluster, body: Json) -> Json:
    body = await cluster.patch_metadata(body, {"annotations": {"a": "1"}})
    body = await cluster.patch_status(body, {"reason": "Tested"})
    await cluster.emit(body, SPEC)
    return body


async def test_the_holder_writes_metadata_status_and_events(
    cluster: KubeCluster, pod: Json, kubectl: Kubectl
) -> None:
    """The API server accepts the time limit of each."""
    written = await _write(cluster, pod)

    assert written["status"]["reason"] == "Tested"
    notes = [event["note"] for event in kubectl.list("events.v1.events.k8s.io")]
    assert SPEC.note in notes


async def test_after_the_term_nothing_is_written_and_reads_are_answered(
    cluster: KubeCluster, clock: Clock, pod: Json, kubectl: Kubectl
) -> None:
    """Status, finalizers and Events are those of the replica that leads."""
    clock.now += 10
    with pytest.raises(Fenced, match="Lease team/web"):
        await cluster.patch_metadata(pod, {"finalizers": ["example.com/a"]})
    with pytest.raises(Fenced, match="Lease team/web"):
        await cluster.patch_status(pod, {"reason": "Tested"})
    with capture_logs() as logs:
        await cluster.emit(pod, SPEC)

    assert [log["event"] for log in logs] == ["Cannot write Kubernetes Events"]
    assert await cluster.get(ObjectRef.of(pod)) == pod
    notes = [event["note"] for event in kubectl.list("events.v1.events.k8s.io")]
    assert SPEC.note not in notes


async def test_a_reconcile_of_an_earlier_epoch_writes_nothing(
    cluster: KubeCluster, fences: Fences, term: LeaseTerm, pod: Json
) -> None:
    """Its copy of the resource may be older than the writes of another leader."""
    with fences.reconciling(ObjectRef.of(pod)):
        term.extend(("uid", 2), term.now())
        with pytest.raises(Fenced):
            await cluster.patch_status(pod, {"reason": "Tested"})
    written = await _write(cluster, pod)
    assert written["status"]["reason"] == "Tested"


async def test_a_request_whose_permit_has_expired_is_not_sent(
    connection: Connection, clock: Clock, term: LeaseTerm, path: str
) -> None:
    """The permit is checked on the open connection: to open one may take long."""
    permit = Fence(term).permit()
    clock.now += 10
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    maps = path.replace("pods", "configmaps")
    for method, url, content in [("POST", maps, body), ("DELETE", f"{maps}/b", None)]:
        with pytest.raises(Fenced):
            await connection.http.request(
                method, connection.url(url), json=content, trace_request_ctx=permit
            )

    found = await Api(connection).request("GET", maps)
    assert "a" not in {item["metadata"]["name"] for item in found["items"]}


async def test_a_body_whose_permit_expires_is_not_sent_to_its_end(
    api: Api, connection: Connection, clock: Clock, term: LeaseTerm, path: str
) -> None:
    """The error names the Lease, and the object is unchanged."""
    maps = path.replace("pods", "configmaps")
    metadata = {"name": "a"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    before = await api.request("POST", maps, body=body)

    async def patch() -> AsyncIterator[bytes]:
        yield b'{"data": '
        clock.now += 10
        yield b'{"a": "1"}}'

    with pytest.raises(Exception, match="Lease team/web"):
        await connection.http.request(
            "PATCH",
            connection.url(f"{maps}/a"),
            data=patch(),
            headers={"Content-Type": MERGE_PATCH},
            trace_request_ctx=Fence(term).permit(),
        )

    assert await api.request("GET", f"{maps}/a") == before


async def test_an_aborted_connection_sends_nothing_more(tmp_path: Path) -> None:
    """Unsent bytes of a former leader do not arrive after its process has ended."""
    received, reading = asyncio.Event(), asyncio.Event()
    ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        received.set()
        await reading.wait()
        try:
            ended.set_result(await reader.read())
        except OSError as error:
            ended.set_exception(error)
        finally:
            writer.close()

    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    authority = tmp_path / "ca.crt"
    tls = server_context(authority, ["127.0.0.1"])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig(url, {}, **{"certificate-authority": str(authority)})))
    connection = await connect(file, user_agent="tests")
    async with server:
        sending = asyncio.create_task(connection.http.post(connection.url("/api/v1"), data=body()))
        await asyncio.wait_for(received.wait(), _SECONDS)

        connection.abort()
        sending.cancel()
        await asyncio.wait({sending})
        await connection.close()
        reading.set()

        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(ended, _SECONDS)
