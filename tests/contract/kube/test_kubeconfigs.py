"""Kubeconfigs mean what they mean to kubectl, compared with the real API server."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from operator_runner.core.errors import ConfigError, Forbidden
from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from operator_runner.kube.session import Connection, connect
from tests.contract.kube.scripted import ScriptedServer
from tests.contract.kube.waiting import until
from tests.support.kubectl import Kubectl

VERSION = "client.authentication.k8s.io/v1"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
def parts(control_plane: Path) -> tuple[Json, Json]:
    """Return cluster and user of the administrator."""
    config = yaml.safe_load(control_plane.read_text())
    return config["clusters"][0]["cluster"], config["users"][0]["user"]


def _write(file: Path, cluster: Json, user: Json) -> Path:
    config: dict[str, Any] = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
    }
    file.write_text(json.dumps(config))
    return file


async def _whoami(connection: Connection) -> Json:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = await Api(connection).request("POST", REVIEW, body=review)
    return dict(found["status"]["userInfo"])


def _plugin(file: Path, answer: Path) -> None:
    """Write a credential plugin that prints `answer`, and keeps its input beside it."""
    file.write_text(f'#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" > {answer}.in\ncat {answer}\n')
    file.chmod(0o755)


def _answer(file: Path, **status: str) -> None:
    file.write_text(json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status}))


def _pem(user: Json, key: str) -> str:
    return base64.b64decode(user[key]).decode()


@pytest.mark.parametrize("source", ["tokenFile", "exec", "client-certificate", "several files"])
async def test_relative_paths_are_below_the_folder_of_their_kubeconfig(
    parts: tuple[Json, Json],
    kubectl: Kubectl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    """As with kubectl, in another working directory, and for each of several files its own."""
    cluster, admin = parts
    folder, elsewhere = tmp_path / "cfg", tmp_path / "cwd"
    for each in (folder, elsewhere, folder / "pki"):
        each.mkdir()
    authority = base64.b64decode(cluster.pop("certificate-authority-data"))
    (folder / "pki" / "ca.crt").write_bytes(authority)
    cluster["certificate-authority"] = "pki/ca.crt"
    (folder / "token").write_text(kubectl.token("default") + "\n")
    (folder / "tls.crt").write_text(_pem(admin, "client-certificate-data"))
    (folder / "tls.key").write_text(_pem(admin, "client-key-data"))
    _plugin(folder / "cred", folder / "answer")
    _answer(folder / "answer", token=kubectl.token("default"))
    expected = f"system:serviceaccount:{kubectl.namespace}:default"
    users: dict[str, Json] = {
        "tokenFile": {"tokenFile": "token"},
        "exec": {"exec": {"apiVersion": VERSION, "command": "./cred", "interactiveMode": "Never"}},
        "client-certificate": {"client-certificate": "tls.crt", "client-key": "tls.key"},
    }
    files = [_write(folder / "config", cluster, users.get(source, {}))]
    if source == "several files":
        (tmp_path / "token").write_text((folder / "token").read_text())
        files.insert(0, tmp_path / "first")
        files[0].write_text(json.dumps({"users": [{"name": "it", "user": {"tokenFile": "token"}}]}))
    if source == "client-certificate":
        expected = "admin"
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))

    connection = await connect(None, user_agent="tests")

    assert (await _whoami(connection))["username"] == expected
    await connection.close()


async def test_all_requests_are_those_of_the_impersonated_user(
    parts: tuple[Json, Json], kubectl: Kubectl, tmp_path: Path
) -> None:
    """User, uid, groups and extra of `as` arrive, and the administrator's rights do not count."""
    cluster, admin = parts
    name = f"system:serviceaccount:{kubectl.namespace}:lowly"
    acting = {
        "as": name,
        "as-uid": "u-1",
        "as-groups": ["system:serviceaccounts", "system:authenticated"],
        "as-user-extra": {"example.com/Team x": ["a", "b"]},
    }
    file = _write(tmp_path / "config", cluster, {**admin, **acting})
    connection = await connect(file, user_agent="tests")

    assert await _whoami(connection) == {
        "username": name,
        "uid": "u-1",
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "extra": {"example.com/team x": ["a", "b"]},
    }
    with pytest.raises(Forbidden, match=f"{name}.* cannot list resource"):
        await Api(connection).request("GET", "/api/v1/namespaces/kube-system/secrets")
    await connection.close()

    acting.pop("as")
    with pytest.raises(ConfigError, match=r"user it has as-uid, .* without `as`"):
        await connect(_write(file, cluster, {**admin, **acting}), user_agent="tests")


async def test_certificates_of_a_plugin_are_renewed_on_new_connections(
    parts: tuple[Json, Json], control_plane: Path, tmp_path: Path
) -> None:
    """A plugin gets the cluster that it asks for; what it answers later replaces the identity."""
    cluster, admin = parts
    other = yaml.safe_load((control_plane.parent / "pki/kube-scheduler.kubeconfig").read_text())
    answer = tmp_path / "answer"
    _plugin(tmp_path / "cred", answer)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    plugin = {"apiVersion": VERSION, "command": str(tmp_path / "cred"), "provideClusterInfo": True}
    described = {**cluster, "disable-compression": True, "extensions": [extension]}

    def answered(user: Json, expiry: str) -> None:
        certificate, key = (_pem(user, f"client-{each}-data") for each in ("certificate", "key"))
        _answer(
            answer,
            clientCertificateData=certificate,
            clientKeyData=key,
            expirationTimestamp=expiry,
        )

    answered(admin, "2020-01-01T00:00:00Z")
    file = _write(tmp_path / "config", described, {"exec": plugin})
    connection = await connect(file, user_agent="tests")
    assert (await _whoami(connection))["username"] == "admin"
    info = json.loads((tmp_path / "answer.in").read_text())
    assert info == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": cluster["server"],
                "certificate-authority-data": cluster["certificate-authority-data"],
                "disable-compression": True,
                "config": {"audience": "x"},
            },
        },
    }

    answered(other["users"][0]["user"], "2100-01-01T00:00:00Z")

    async def is_renewed() -> bool:
        return bool((await _whoami(connection))["username"] == "system:kube-scheduler")

    await until(is_renewed)
    await connection.close()


async def test_responses_are_not_compressed_if_the_kubeconfig_says_so(
    scripted: ScriptedServer, tmp_path: Path
) -> None:
    """`disable-compression` saves the time of the API server for long lists."""
    seen: list[str] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers["Accept-Encoding"])
        return web.json_response({})

    scripted.answer = note
    for cluster in ({}, {"disable-compression": True}):
        file = _write(tmp_path / "config", {"server": scripted.url, **cluster}, {})
        connection = await connect(file, user_agent="tests")
        await Api(connection).request("GET", "/api")
        await connection.close()
    assert "gzip" in seen[0]
    assert seen[1] == "identity"
