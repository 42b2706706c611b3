"""The port for Jobs: who may use it, and for how long."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from operator_runner.ansible.jobs import server as job_server
from operator_runner.ansible.jobs.channel import RunChannel
from operator_runner.ansible.jobs.server import JobServer
from operator_runner.ansible.jobs.worker import Replicas
from operator_runner.core.errors import Unavailable
from operator_runner.core.fencing import Fences
from operator_runner.core.model import Json
from operator_runner.core.settings import Address
from operator_runner.kube.certificate_sources import InMemoryCertificates
from operator_runner.kube.session import Connection
from operator_runner.net.certificates import CertificateBundle, CertificateLifetimes
from operator_runner.proxy.server import Proxy
from tests.contract.proxy.conftest import SECONDS, WATCH, Recorder, config_map, proxied
from tests.fakes.term import Clock

INPUT, OUTPUT = "/operator-runner.dev/run/input", "/operator-runner.dev/run/output"
TOKEN = "the-token-of-a-job"
SOURCE = InMemoryCertificates(CertificateLifetimes())
"""The certificates are those of all replicas."""


class Output(RunChannel):
    """Keeps the output of a run."""

    def __init__(self, input_file: Path) -> None:
        super().__init__(input_file)
        self.content = b""

    async def _write(self, writer: int, chunk: bytes) -> None:
        await super()._write(writer, chunk)
        self.content += chunk


class Pod:
    """A client of the port."""

    def __init__(self, server: JobServer) -> None:
        context = ssl.create_default_context(cadata=server.authorities.decode())
        self.url = f"https://{server.address.host}:{server.address.port}"
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def send(
        self, method: str, path: str, *, token: str | None = TOKEN, offset: int = 0, **body: Any
    ) -> tuple[int, str]:
        """Return the status and the body of an answer; status 0 if the connection is cut."""
        headers = {"Operator-Runner-Offset": str(offset)}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with self.session.request(
            method, self.url + path, headers=headers, timeout=timeout, **body
        ) as answer:
            return answer.status, await answer.text()


class Failing(InMemoryCertificates):
    """Has certificates after two errors, and sets `renewed` when they have been loaded."""

    renewed: asyncio.Event
    calls = 0

    async def current(self, names: Sequence[str], *, is_published: bool) -> CertificateBundle:
        """Return the certificates."""
        self.calls += 1
        if self.calls < 3:
            raise (ValueError if self.calls == 1 else Unavailable)("no certificate")
        if self.calls == 4:
            self.renewed.set()
        return await super().current(names, is_published=is_published)


async def serve(
    proxy: Proxy, owns: Callable[[str], bool] | None = None
) -> AsyncIterator[JobServer]:
    server = JobServer(proxy, SOURCE, 0, Address("127.0.0.1", 0), owns)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def server(proxy: Proxy) -> AsyncIterator[JobServer]:
    """Serve the port."""
    async for server in serve(proxy):
        yield server


@pytest.fixture
async def pod(server: JobServer) -> AsyncIterator[Pod]:
    """Return a client of the port."""
    client = Pod(server)
    yield client
    await client.session.close()


async def test_a_token_is_valid_until_its_run_ends(
    server: JobServer, proxy: Proxy, owner: Json, pod: Pod, tmp_path: Path
) -> None:
    """It gives the API, the input and the output of its run; afterwards they answer 410."""
    (tmp_path / "input").write_text("the project")
    output = Output(tmp_path / "input")
    path = f"/api/v1/namespaces/{owner['metadata']['namespace']}/configmaps"
    for each in (INPUT, OUTPUT, path):
        assert (await pod.send("GET", each))[0] == 401
    with proxy.grant(owner, WATCH, "run-1"), server.attach("run-1", TOKEN, output):
        assert await pod.send("GET", INPUT) == (200, "the project")
        assert (await pod.send("POST", OUTPUT, data=b"abc"))[0] == 200
        assert (await pod.send("POST", OUTPUT, data=b"abc"))[0] == 409
        assert (await pod.send("POST", OUTPUT, offset=3, data=b"def"))[0] == 200
        assert output.content == b"abcdef"
        status, text = await pod.send("POST", path, json=config_map("made"))
        assert status == 201
        assert '"name":"owner"' in text.replace(" ", "")
        for other in (None, "", "other", TOKEN + "x"):
            assert (await pod.send("GET", path, token=other))[0] == 401
    for each in (INPUT, OUTPUT):
        assert (await pod.send("GET", each))[0] == 410
    assert (await pod.send("GET", path))[0] == 401


async def test_tokens_of_local_runs_are_not_valid_for_jobs(
    server: JobServer, proxy: Proxy, owner: Json, pod: Pod
) -> None:
    """They are for loopback alone, and those of Jobs for this port alone."""
    del server
    with proxy.grant(owner, WATCH, "run-1") as kubeconfig:
        token = kubeconfig.partition("token: ")[2].split()[0]
        assert (await pod.send("GET", "/api/v1/namespaces", token=token))[0] == 401


async def test_the_port_has_tls_only(server: JobServer) -> None:
    """A request by plain HTTP has no answer."""

    def plain() -> bytes:
        address = (server.address.host, server.address.port)
        with socket.create_connection(address, timeout=SECONDS) as connection:
            connection.sendall(b"GET /api HTTP/1.1\r\nHost: a\r\n\r\n")
            try:
                return connection.recv(100)
            except ConnectionError:
                return b""

    assert b"HTTP" not in await asyncio.to_thread(plain)


@pytest.fixture
async def fenced(
    connection: Connection, recorder: Recorder, fences: Fences
) -> AsyncIterator[Proxy]:
    """Serve a proxy whose writes are fenced."""
    async with proxied(connection, recorder, fences=fences) as proxy:
        yield proxy


async def test_writes_of_jobs_are_fenced(
    fenced: Proxy, owner: Json, clock: Clock, tmp_path: Path
) -> None:
    """A Job of a former leader cannot write through its operator."""
    path = f"/api/v1/namespaces/{owner['metadata']['namespace']}/configmaps"
    async for server in serve(fenced):
        pod, output = Pod(server), Output(tmp_path)
        with fenced.grant(owner, WATCH, "run-1"), server.attach("run-1", TOKEN, output):
            assert (await pod.send("POST", path, json=config_map("first")))[0] == 201
            clock.now += 11
            assert (await pod.send("POST", path, json=config_map("second")))[0] == 403
        await pod.session.close()


async def test_requests_of_a_running_job_wait_for_its_adoption(
    server: JobServer, proxy: Proxy, owner: Json, pod: Pod, tmp_path: Path
) -> None:
    """The play does not notice that its operator has restarted; other tokens are refused."""
    path = f"/api/v1/namespaces/{owner['metadata']['namespace']}/configmaps/owner"
    server.expect(TOKEN, "uid", SECONDS)
    early = asyncio.create_task(pod.send("GET", path))
    while not server.waiting:  # noqa: ASYNC110 (the request is on its way)
        await asyncio.sleep(0.05)
    assert (await pod.send("GET", path, token="invented"))[0] == 401
    assert not early.done()
    with proxy.grant(owner, WATCH, "run-1"), server.attach("run-1", TOKEN, Output(tmp_path)):
        assert (await early)[0] == 200
    assert (await pod.send("GET", path))[0] == 401


async def test_requests_of_a_job_that_is_not_adopted_are_refused(
    server: JobServer, pod: Pod
) -> None:
    """The Job is deleted, or its deadline has passed."""
    server.expect(TOKEN, "uid", SECONDS)
    early = asyncio.create_task(pod.send("GET", "/api"))
    while not server.waiting:  # noqa: ASYNC110 (the request is on its way)
        await asyncio.sleep(0.05)
    server.refuse(TOKEN)
    assert (await early)[0] == 401
    server.expect("late", "uid", 0.0)
    assert (await pod.send("GET", "/api", token="late"))[0] == 401


async def test_pods_of_jobs_that_are_left_to_the_next_operator_get_no_answer(
    server: JobServer, proxy: Proxy, owner: Json, pod: Pod, tmp_path: Path
) -> None:
    """They cannot connect, which their relay waits for; 410 or 401 would end the play."""
    with proxy.grant(owner, WATCH, "run-1"), server.attach("run-1", TOKEN, Output(tmp_path)):
        assert (await pod.send("GET", OUTPUT))[0] == 200
        await server.stop()
        with pytest.raises(aiohttp.ClientConnectionError):
            await pod.send("GET", OUTPUT)
    with pytest.raises(aiohttp.ClientConnectionError):
        await pod.send("GET", OUTPUT)
    await server.stop()


@pytest.fixture
async def replicas(proxy: Proxy) -> AsyncIterator[tuple[JobServer, JobServer]]:
    """Serve the ports of two replicas, of which the first owns all resources."""
    async for first in serve(proxy, lambda _: True):
        async for second in serve(proxy, lambda _: False):
            yield first, second


def found_by(
    asked: JobServer, folder: Path, token: str = TOKEN
) -> Callable[[], Awaitable[tuple[str, int] | None]]:
    """Return what asks replicas for the one with the run, as the relay of its Pod does."""
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(asked.authorities)
    relay = Replicas((asked.address.host, asked.address.port), folder, "uid")

    def find() -> tuple[str, int] | None:
        try:
            with relay.connect() as connection:
                host, port = connection.getpeername()
                return host, port
        except OSError:
            return None

    return lambda: asyncio.to_thread(find)


async def test_a_pod_finds_the_replica_that_has_its_run(
    replicas: tuple[JobServer, JobServer], proxy: Proxy, owner: Json, tmp_path: Path
) -> None:
    """Others report that they do not have it; the owner of the resource refuses other tokens."""
    first, second = replicas
    here = (first.address.host, first.address.port)
    with proxy.grant(owner, WATCH, "run-1"), first.attach("run-1", TOKEN, Output(tmp_path)):
        assert await found_by(second, tmp_path)() is None
        assert await found_by(first, tmp_path)() == here
    assert await found_by(first, tmp_path, "invented")() == here
    pod = Pod(first)
    assert (await pod.send("GET", OUTPUT, token="invented"))[0] == 401
    await pod.session.close()


async def test_a_pod_follows_its_run_to_the_next_owner(
    replicas: tuple[JobServer, JobServer], proxy: Proxy, owner: Json, tmp_path: Path
) -> None:
    """The former owner gives its play no answer, which would fail a task or end the Pod."""
    former, current = replicas
    find = found_by(former, tmp_path)
    output, pod = Output(tmp_path), Pod(former)
    with (
        proxy.grant(owner, WATCH, "run-1"),
        former.attach("run-1", TOKEN, output, lambda: True),
    ):
        assert await find() == (former.address.host, former.address.port)
        assert (await pod.send("GET", OUTPUT))[0] == 200
    for path in (OUTPUT, "/api"):
        with pytest.raises(aiohttp.ClientConnectionError):
            await pod.send("GET", path)
    await pod.session.close()
    assert await find() is None
    find = found_by(current, tmp_path)
    current.expect(TOKEN, "uid", SECONDS)
    assert await find() == (current.address.host, current.address.port)


async def test_expected_jobs_of_released_slots_are_left_to_the_next_owner(
    replicas: tuple[JobServer, JobServer], tmp_path: Path
) -> None:
    """Requests that wait for the adoption end without an answer, and are repeated there."""
    server, _ = replicas
    server.expect(TOKEN, "uid", SECONDS)
    pod = Pod(server)
    early = asyncio.create_task(pod.send("GET", "/api"))
    while not server.waiting:  # noqa: ASYNC110 (the request is on its way)
        await asyncio.sleep(0.05)
    server.forget(lambda uid: uid == "other")
    assert await found_by(server, tmp_path)() is not None
    server.forget(lambda uid: uid == "uid")
    with pytest.raises(aiohttp.ClientConnectionError):
        await early
    await pod.session.close()
    assert await found_by(server, tmp_path)() is None


async def test_a_job_that_is_expected_late_has_no_second_life(
    replicas: tuple[JobServer, JobServer], proxy: Proxy, owner: Json, tmp_path: Path
) -> None:
    """A Job that was listed while its run began or ended is not waited for."""
    server, _ = replicas
    client = Pod(server)
    with proxy.grant(owner, WATCH, "run-1"), server.attach("run-1", TOKEN, Output(tmp_path)):
        server.expect(TOKEN, "uid", SECONDS)
    assert (await client.send("GET", OUTPUT))[0] == 410
    server.expect(TOKEN, "uid", SECONDS)
    assert (await client.send("GET", OUTPUT))[0] == 410
    await client.session.close()


async def test_certificates_are_renewed_after_any_error(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Secret that somebody has edited, for example, does not end the operator."""
    monkeypatch.setattr(job_server, "_RENEWAL_SECONDS", 0.0)
    source = Failing(CertificateLifetimes())
    source.renewed = asyncio.Event()
    server = JobServer(proxy, source, 0, Address("127.0.0.1", 0))
    renewing = asyncio.create_task(server.renew())
    async with asyncio.timeout(SECONDS):
        await source.renewed.wait()
    renewing.cancel()
    await asyncio.wait({renewing})
    assert server.authorities
