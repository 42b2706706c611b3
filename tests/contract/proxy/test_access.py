"""Authentication of clients, credentials of forwarded requests, and error messages."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.core.settings import Address
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import Connection, connect
from operator_runner.proxy.server import Proxy

from .conftest import SECONDS, WATCH, Recorder, Run, config_map, proxied, source


@pytest.fixture
async def http(run: Run) -> AsyncIterator[aiohttp.ClientSession]:
    """Give a plain HTTP client that trusts the proxy's certificate but has no token."""
    server, authority, _ = run.server
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority))
    async with aiohttp.ClientSession(server, connector=connector) as session:
        yield session


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Basic b3BlcmF0b3I6"])
async def test_requests_without_the_token_get_a_401(
    http: aiohttp.ClientSession, header: str | None
) -> None:
    """No token or a wrong one gets a 401 that has a hint, for reads and upgrades too."""
    headers = {} if header is None else {"Authorization": header}
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    for further in ({}, upgrade):
        async with http.get("/api/v1/secrets", headers=headers | further) as response:
            status = await response.json()
            assert (response.status, status["kind"], status["code"]) == (401, "Status", 401)
            assert "KUBECONFIG" in status["message"]


async def test_the_message_reaches_kubectl(run: Run) -> None:
    """The error for an invalid token has reason and hint."""
    _, _, token = run.server
    run.kubeconfig.write_text(run.kubeconfig.read_text().replace(token, "void"))
    status, _, err = await run.done(*run.command("get", "--raw=/version"))
    assert status == 1
    assert "invalid token: use the kubeconfig of the run" in err


async def test_a_token_is_invalid_after_its_run(
    proxy: Proxy, owner: Json, tmp_path: Path, control_plane_cluster: Cluster
) -> None:
    """When the run is over, its open watch ends and its token opens nothing any more."""
    with proxy.grant(owner, WATCH, "run-1") as text:
        (tmp_path / "kubeconfig").write_text(text)
        run = Run(tmp_path / "kubeconfig", control_plane_cluster.bin)
        watch = await run.start(*run.command("get", "configmaps", "--watch", "--output=name"))
        assert watch.stdout is not None
        assert b"configmap/" in await watch.stdout.readline()
        # The list has come; only an event shows that the watch is open.
        await run.kubectl("create", "configmap", "event")
        while await watch.stdout.readline() != b"configmap/event\n":
            assert not watch.stdout.at_eof()
    async with asyncio.timeout(SECONDS):
        _, err = await watch.communicate()
    assert b"invalid token" not in err
    status, _, output = await run.done(*run.command("get", "--raw=/version"))
    assert (status, "invalid token" in output) == (1, True)


async def test_runs_do_not_mix(
    proxy: Proxy, run: Run, owner: Json, connection: Connection, tmp_path: Path
) -> None:
    """Two runs at once create objects of their own owners."""
    namespace = owner["metadata"]["namespace"]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    second = config_map("second-owner", namespace)
    async with connection.http.post(connection.url(path), json=second) as response:
        other_owner = await response.json()
    with proxy.grant(other_owner, WATCH, "run-2") as text:
        (tmp_path / "second").write_text(text)
        other = Run(tmp_path / "second", run.bin)
        await asyncio.gather(
            *(run.kubectl("create", "configmap", f"a{n}") for n in range(3)),
            *(other.kubectl("create", "configmap", f"b{n}") for n in range(3)),
        )
    found = json.loads(await run.kubectl("get", "configmaps", "--output=json"))["items"]
    owned = {
        body["metadata"]["name"]: body["metadata"]["ownerReferences"][0]["name"]
        for body in found
        if "ownerReferences" in body["metadata"]
    }
    assert owned == dict.fromkeys(["a0", "a1", "a2"], "owner") | dict.fromkeys(
        ["b0", "b1", "b2"], "second-owner"
    )


async def test_a_request_for_another_server_is_refused(run: Run) -> None:
    """A request target that names another server is refused: it must not get credentials."""
    server, authority, token = run.server
    port = int(server.rpartition(":")[2])
    context = ssl.create_default_context(cafile=authority)
    for target in ("http://other.example/x", "*"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        head = f"OPTIONS {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(SECONDS):
            assert b" 400 " in await reader.readline()
        writer.close()


async def test_the_api_server_is_away(
    recorder: Recorder, owner: Json, tmp_path: Path, control_plane: Path
) -> None:
    """Without an API server, clients get a Status with the reason and Retry-After."""
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))  # no process listens there, nor can another one
    port = closed.getsockname()[1]
    (tmp_path / "away").write_text(source(f"https://127.0.0.1:{port}"))
    away = await connect(tmp_path / "away", user_agent="test")
    async with proxied(away, recorder) as proxy:
        with proxy.grant(owner, WATCH, "run-1") as text:
            (tmp_path / "kubeconfig").write_text(text)
            server, authority, token = Run(tmp_path / "kubeconfig", control_plane).server
            headers = {"Authorization": f"Bearer {token}"}
            trust = ssl.create_default_context(cafile=authority)
            async with (
                aiohttp.ClientSession(server, headers=headers) as http,
                http.get("/api", ssl=trust) as response,
            ):
                status = await response.json()
    await away.close()
    closed.close()
    assert (response.status, status["reason"]) == (503, "ServiceUnavailable")
    assert f"cannot reach the API server https://127.0.0.1:{port}" in status["message"]
    assert response.headers["Retry-After"] == "1"


async def test_a_taken_port_is_reported_with_its_flag(
    proxy: Proxy, connection: Connection, recorder: Recorder, tmp_path: Path
) -> None:
    """The error of a second proxy on the same port names port and flag."""
    second = Proxy(connection, proxy.address, recorder, Discovery(Api(connection)), tmp_path)
    with pytest.raises(ConfigError, match=rf"{proxy.address.port}.*--proxy-port"):
        await second.start()


def content(folder: Path) -> tuple[int, list[str]]:
    """Return the mode of a folder and the names of its files."""
    return folder.stat().st_mode & 0o777, [file.name for file in folder.iterdir()]


async def test_a_stopped_proxy_leaves_no_file(connection: Connection, recorder: Recorder) -> None:
    """After its end the proxy does not respond and leaves no file; its key is never in one."""
    async with proxied(connection, recorder) as proxy:
        body = config_map("owner", "team")
        body["metadata"]["uid"] = "uid-1"
        with proxy.grant(body, WATCH, "run-1") as text:
            line = next(line for line in text.splitlines() if "certificate-authority:" in line)
        authority = Path(line.split()[-1])
        assert content(authority.parent) == (0o700, ["ca.crt"])
    with pytest.raises(FileNotFoundError):
        content(authority.parent)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", proxy.address.port)


async def test_the_proxy_listens_on_localhost_or_on_no_host(
    connection: Connection, recorder: Recorder, run: Run, owner: Json, tmp_path: Path
) -> None:
    """Listening on `localhost` or on no host at all gives kubeconfigs that work."""
    for host in ("localhost", ""):
        proxy = Proxy(connection, Address(host, 0), recorder, Discovery(Api(connection)), tmp_path)
        await proxy.start()
        with proxy.grant(owner, WATCH, "run-2") as text:
            run.kubeconfig.write_text(text)
            assert await run.kubectl("get", "--raw=/version")
        await proxy.stop()


async def test_runs_act_as_the_user_that_the_kubeconfig_impersonates(
    control_plane: Path, control_plane_cluster: Cluster, owner: Json, tmp_path: Path
) -> None:
    """Requests of runs have its permissions, and a run cannot leave them by impersonating."""
    config = yaml.safe_load(control_plane.read_text())  # noqa: ASYNC240 (a test may wait)
    config["users"][0]["user"]["as"] = "system:serviceaccount:default:lowly"
    file = tmp_path / "as.kubeconfig"
    file.write_text(json.dumps(config))
    connection = await connect(file, user_agent="tests")
    async with proxied(connection, Recorder()) as proxy:
        with proxy.grant(owner, WATCH, "run-1") as text:
            (tmp_path / "kubeconfig").write_text(text)
            run = Run(tmp_path / "kubeconfig", control_plane_cluster.bin)
            who = await run.kubectl("auth", "whoami", "-o=jsonpath={.status.userInfo.username}")
            assert who == "system:serviceaccount:default:lowly"
            for flags in ((), ("--as=admin", "--as-group=system:masters")):
                status, _, err = await run.done(
                    *run.command("get", "secrets", "--namespace=kube-system", *flags)
                )
                assert status == 1
                assert ("remove one of them" if flags else "lowly") in err
    await connection.close()
