"""Connections: credentials of every kind, their renewal, and callbacks for watches."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientTimeout, web
from kubernetes.aio.config import incluster_config

from operator_runner.core.errors import ConfigError, Forbidden, NotFound, Unavailable
from operator_runner.kube.api import Api
from operator_runner.kube.session import Connection, connect
from tests.contract.kube.scripted import ScriptedServer, kubeconfig, status
from tests.support.kubectl import Kubectl
from tests.support.waiting import eventually

_AT_ONCE = ClientTimeout(total=1e-9)


async def test_a_client_certificate_opens_the_api(connection: Connection, namespace: str) -> None:
    """The administrator's certificate may read a namespace."""
    found = await Api(connection).request("GET", f"/api/v1/namespaces/{namespace}")

    assert found["metadata"]["name"] == namespace


async def test_no_private_key_is_left_in_a_file(
    control_plane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inline keys are written for the moment of loading only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    connection = await connect(control_plane, user_agent="tests")
    await connection.close()

    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_closing_one_session_leaves_the_other(connection: Connection, namespace: str) -> None:
    """A library may close its session; ours remains open, for full URLs as well as for paths."""
    async with connection.session() as other:
        answer = await other.get(f"{connection.server}/api/v1/namespaces/{namespace}")
        assert answer.status == 200
        answer = await other.get(f"/api/v1/namespaces/{namespace}")
        assert answer.status == 200

    assert await Api(connection).request("GET", f"/api/v1/namespaces/{namespace}")


async def test_all_responses_are_reported(control_plane: Path, namespace: str) -> None:
    """Each request of any session is reported with status, method and host."""
    responses: list[tuple[int | None, str, str]] = []
    connection = await connect(control_plane, user_agent="tests")
    connection.on_response(lambda *answer: responses.append(answer))
    try:
        await Api(connection).request("GET", f"/api/v1/namespaces/{namespace}")
        async with connection.session() as session:
            await session.post("/api/v1/nothings", json={})
            with pytest.raises(TimeoutError):
                await session.get("/api/v1/pods", params={"watch": "1"}, timeout=_AT_ONCE)
    finally:
        await connection.close()
    host = connection.server.removeprefix("https://")
    assert responses == [(200, "GET", host), (404, "POST", host), (None, "GET", host)]


@pytest.mark.parametrize("name", ["localhost", "elsewhere.example.com"])
async def test_tls_server_name_decides_the_certificate_check(
    control_plane: Path, tmp_path: Path, name: str
) -> None:
    """`tls-server-name` is compared with the server's certificate in place of the host."""
    cluster = _cluster(control_plane)
    server = cluster.pop("server")
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig(server, {}, **cluster, **{"tls-server-name": name})))
    connection = await connect(file, user_agent="tests")

    version = Api(connection).request("GET", "/version")

    if name == "localhost":
        assert (await version)["major"]  # every account may read the version
    else:
        with pytest.raises(Unavailable, match="certificate"):
            await version
    await connection.close()


async def test_the_service_account_of_a_pod_opens_the_api(
    control_plane: Path,
    kubectl: Kubectl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Token, CA and namespace are taken from where the kubelet mounts them."""
    cluster = _cluster(control_plane)
    host, port = cluster["server"].removeprefix("https://").split(":")
    (tmp_path / "token").write_text(kubectl.token("default"))
    (tmp_path / "ca.crt").write_text(_authority(kubectl))
    (tmp_path / "namespace").write_text(kubectl.namespace)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    connection = await connect(None, user_agent="tests")

    assert connection.namespace == kubectl.namespace
    with pytest.raises(Forbidden, match=f"system:serviceaccount:{kubectl.namespace}:default"):
        await Api(connection).request("GET", "/api/v1/nodes")
    await connection.close()


def _cluster(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text())["clusters"][0]["cluster"])


def _authority(kubectl: Kubectl) -> str:
    # A controller creates it in each new namespace.
    found = eventually(lambda: kubectl.get("configmap", "kube-root-ca.crt"))
    assert found is not None
    return str(found["data"]["ca.crt"])


async def test_several_files_are_merged_as_kubectl_does(
    scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KUBECONFIG may name several files: the first to name a context decides."""
    whole = kubeconfig(scripted.url, {"token": "t"})
    names = {"current-context": "it", "contexts": whole.pop("contexts")}
    whole["current-context"] = "another"
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(json.dumps(names))
    second.write_text(json.dumps(whole))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'absent'}:{second}")

    connection = await connect(None, user_agent="tests")

    assert (connection.server, connection.namespace) == (scripted.url, "here")
    await connection.close()


async def test_a_server_behind_a_path_is_reached(scripted: ScriptedServer) -> None:
    """Gateways serve several API servers, each behind a path of its own."""

    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path})

    scripted.answer = echo
    connection = await connect(scripted.kubeconfig(path="/clusters/one"), user_agent="tests")

    answer = await Api(connection).request("GET", "/api/v1/nodes/a")

    assert answer == {"path": "/clusters/one/api/v1/nodes/a"}
    await connection.close()


async def _only_new(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != "Bearer new":
        return status(401, "Unauthorized")
    return web.json_response({"got": await request.text()})


@pytest.mark.parametrize("source", ["tokenFile", "exec"])
async def test_expired_credentials_are_renewed_at_once(
    scripted: ScriptedServer, tmp_path: Path, source: str
) -> None:
    """After a 401 the credentials are loaded again, and the request is repeated with its body."""
    token = tmp_path / "token"
    token.write_text("old")
    connection = await connect(scripted.kubeconfig(_user(source, token)), user_agent="tests")
    scripted.answer = _only_new
    token.write_text("new")

    answer = await Api(connection).request("POST", "/apis", body={"a": 1})

    assert json.loads(answer["got"]) == {"a": 1}
    await connection.close()


def _user(source: str, token: Path) -> dict[str, Any]:
    if source == "tokenFile":
        return {"tokenFile": str(token)}
    version = "client.authentication.k8s.io/v1"
    credential = f'{{"apiVersion":"{version}","kind":"ExecCredential","status":{{"token":"%s"}}}}'
    script = f"printf '{credential}' $(cat {token})"
    return {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script]}}


async def test_repeatedly_rejected_credentials_are_an_error(scripted: ScriptedServer) -> None:
    """A wrong token ends in Forbidden with the server's message; nothing loops."""
    scripted.answer = _only_new
    connection = await connect(scripted.kubeconfig({"token": "wrong"}), user_agent="tests")

    with pytest.raises(Forbidden, match=r"Unauthorized: .*renew the token"):
        await Api(connection).request("GET", "/apis")

    await connection.close()


async def test_credentials_are_sent_to_the_api_server_only(
    scripted: ScriptedServer,
) -> None:
    """A URL of another server gets no token."""
    seen: list[str | None] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    scripted.answer = note
    ours = await connect(scripted.kubeconfig({"token": "secret"}), user_agent="tests")
    await ours.http.get(scripted.url + "/api")
    await ours.http.get(scripted.url.replace("127.0.0.1", "localhost") + "/api")
    await ours.close()

    assert seen == ["Bearer secret", None]


async def test_a_failing_plugin_is_a_config_error(scripted: ScriptedServer) -> None:
    """The error has the message of the plugin."""
    version = "client.authentication.k8s.io/v1"
    args = ["-c", "echo not logged in >&2; exit 3"]
    user = {"exec": {"apiVersion": version, "command": "sh", "args": args}}

    with pytest.raises(ConfigError, match="not logged in"):
        await connect(scripted.kubeconfig(user), user_agent="tests")


async def test_requests_do_not_queue_behind_watches(connection: Connection, namespace: str) -> None:
    """Any number of watches may be open; ordinary requests still get a connection."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    watches = [await connection.http.get(pods, params={"watch": "true"}) for _ in range(120)]

    with pytest.raises(NotFound):
        await Api(connection).request("GET", f"{pods}/none")

    for watch in watches:
        watch.close()
