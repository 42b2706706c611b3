"""Programs without a run's token, such as sidecars for ansible-operator's proxy."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest
from structlog.testing import capture_logs

from operator_runner.core.model import Json
from operator_runner.kube.session import Connection
from operator_runner.proxy.server import Proxy
from tests.support.operator import free_port

from .conftest import SECONDS, WATCH, Recorder, Run, config_map, owners, proxied


@pytest.fixture
async def open_proxy(connection: Connection, recorder: Recorder) -> AsyncIterator[Proxy]:
    """Serve a proxy with --proxy-allow-anonymous."""
    async with proxied(connection, recorder, anonymous=[WATCH]) as served:
        yield served


def client(proxy: Proxy, user: str = "") -> aiohttp.ClientSession:
    """Give a plain HTTP client, with the user in the URL as ansible-operator's kubeconfigs."""
    headers = {"Authorization": f"Basic {_base64(f'{user}:unused')}"} if user else {}
    return aiohttp.ClientSession(f"http://127.0.0.1:{proxy.address.port}", headers=headers)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def named(owner: Json) -> str:
    """Name an owner as ansible-operator does."""
    metadata = {key: owner["metadata"][key] for key in ("name", "uid", "namespace")}
    return _base64(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", **metadata}))


async def test_anonymous_requests_get_a_401_that_names_the_flag(proxy: Proxy, run: Run) -> None:
    """Plain HTTP on the proxy's port is answered with a 401 that names the flag."""
    url = f"http://127.0.0.1:{proxy.address.port}/api/v1/secrets"
    status, out, err = await run.done("curl", "--silent", "--include", url)
    assert (status, err) == (0, "")
    assert out.startswith("HTTP/1.1 401 ")
    assert "--proxy-allow-anonymous" in json.loads(out.partition("\r\n\r\n")[2])["message"]


async def test_requests_without_an_owner_pass_and_nothing_gets_one(
    open_proxy: Proxy, recorder: Recorder, namespace: str
) -> None:
    """Without an owner everything passes with the operator's rights, and nothing gets an owner."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with client(open_proxy) as http:
        async with http.post(path, json=config_map("free")) as response:
            assert response.status == 201
        # A sidecar's own token is not the operator's.
        headers = {"Authorization": "Bearer of-the-sidecar"}
        async with http.get(f"{path}/free", headers=headers) as response:
            assert owners(await response.json()) == []
    assert (recorder.seen, recorder.written) == ([], [])


async def test_objects_belong_to_the_owner_in_the_url(
    open_proxy: Proxy, recorder: Recorder, owner: Json
) -> None:
    """Objects created through http://<owner>@localhost belong to that owner and are watched.

    The write belongs to no run, so the role runs after it.
    """
    path = f"/api/v1/namespaces/{owner['metadata']['namespace']}/configmaps"
    async with (
        client(open_proxy, named(owner)) as http,
        http.post(path, json=config_map("mine")) as response,
    ):
        made = await response.json()
    assert made["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert [dependent.name for _, dependent in recorder.seen] == ["mine"]
    assert recorder.written == []


async def test_kubectl_accepts_a_kubeconfig_of_ansible_operator(
    open_proxy: Proxy, owner: Json, run: Run
) -> None:
    """A kubeconfig as ansible-operator writes it serves kubectl."""
    user = named(owner)
    namespace = owner["metadata"]["namespace"]
    context = {"cluster": "proxy-server", "user": f"admin/{user}", "namespace": namespace}
    server = f"http://{user}@localhost:{open_proxy.address.port}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{"name": "proxy-server", "cluster": {"server": server}}],
        "contexts": [{"name": "proxy", "context": context}],
        "users": [{"name": f"admin/{user}", "user": {"username": user, "password": "unused"}}],
    }
    run.kubeconfig.write_text(json.dumps(content))
    await run.kubectl("create", "configmap", "by-kubectl")
    assert owners(await run.get("configmap", "by-kubectl")) == ["owner"]


async def test_runs_are_served_beside(open_proxy: Proxy, owner: Json, run: Run) -> None:
    """With the flag, runs use HTTPS and a token on the same port; a void token opens nothing."""
    with open_proxy.grant(owner, WATCH, "run-2") as text:
        run.kubeconfig.write_text(text)
        await run.kubectl("create", "configmap", "of-the-run")
        assert owners(await run.get("configmap", "of-the-run")) == ["owner"]
    status, _, err = await run.done(*run.command("get", "--raw=/version"))
    assert (status, "invalid token" in err) == (1, True)


async def test_kubeconfigs_have_the_port_of_the_flag(
    connection: Connection, recorder: Recorder, owner: Json
) -> None:
    """Kubeconfigs have the port of --proxy-port; the risk of the flag is logged once."""
    port = free_port()
    with capture_logs() as logs:
        async with proxied(connection, recorder, port=port, anonymous=[WATCH]) as served:
            with served.grant(owner, WATCH, "run-1") as text:
                assert f"https://127.0.0.1:{port}\n" in text
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert [line["flag"] for line in warnings] == ["--proxy-allow-anonymous"]


@pytest.mark.parametrize("first", [b"", b"\x16nonsense", b"nonsense\r\n\r\n"])
async def test_connections_without_a_valid_request_are_closed(
    proxy: Proxy, run: Run, first: bytes
) -> None:
    """A connection without a request, or with an invalid one, is closed; the next one is served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.address.port)
    writer.write(first)
    writer.write_eof()
    answer = b""
    async with asyncio.timeout(SECONDS):
        with suppress(ConnectionResetError):
            answer = await reader.read()
    assert b"200" not in answer
    writer.close()
    server, authority, token = run.server
    context = ssl.create_default_context(cafile=authority)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(server, headers=headers) as http,
        http.get("/version", ssl=context) as response,
    ):
        assert response.status == 200
