"""A dry run writes nothing, reads what it has written, and shows what would differ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from aiohttp import hdrs

from operator_runner.core.json_bounds import MAX_DEPTH, height
from operator_runner.core.model import Json
from operator_runner.core.object_diff import ObjectDifference
from operator_runner.devcluster import Cluster
from operator_runner.proxy.bodies import PROTOBUF
from operator_runner.proxy.dry_run.overlay import DryRun, ObjectKey
from operator_runner.proxy.dry_run.sending import MAX_RESPONSE_BYTES
from operator_runner.proxy.server import Proxy
from tests.contract.proxy.conftest import WATCH, Run, config_map, owners
from tests.contract.proxy.test_streams import Upstream, client, serving
from tests.support.kubectl import Kubectl
from tests.support.waiting import eventually


@pytest.fixture
def dry_run() -> DryRun:
    """Return a dry run that has written nothing."""
    return DryRun()


@pytest.fixture
def dry(
    proxy: Proxy, owner: Json, dry_run: DryRun, tmp_path: Path, control_plane_cluster: Cluster
) -> Iterator[Run]:
    """Give the programs of a run that must write nothing."""
    with proxy.grant(owner, WATCH, "dry-1", dry_run=dry_run) as text:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(text)
        yield Run(kubeconfig, control_plane_cluster.bin)


def _texts(dry_run: DryRun) -> list[str]:
    return [
        f"{each.ref.gvk.kind} {each.ref.name} {each.change.value}" for each in dry_run.differences()
    ]


def _one(dry_run: DryRun) -> ObjectDifference:
    (difference,) = dry_run.differences()
    return difference


def _deployment(image: str = "nginx:1") -> Json:
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    }


def _deployed(kubectl: Kubectl, body: Json) -> Json:
    """Apply a Deployment; return it when its controller has written all that it can without nodes.

    A write between the requests of a dry run would be a conflict, or another difference.
    """
    kubectl.apply(body)

    def is_settled(found: Json | None) -> bool:
        if found is None:
            return False
        return bool(found["status"].get("unavailableReplicas") == found["spec"]["replicas"])

    found = eventually(lambda: kubectl.get("deployment", body["metadata"]["name"]), is_settled)
    assert found is not None
    return found


async def test_a_created_object_is_read_patched_and_deleted_without_being_stored(
    dry: Run, dry_run: DryRun, kubectl: Kubectl
) -> None:
    """As in a run that writes, and the API server has completed and checked it."""
    await dry.send("apply", _deployment())
    made = await dry.get("deployment", "web")
    assert made["spec"]["replicas"] == 1  # a default of the API server
    assert owners(made) == ["owner"]
    await dry.kubectl("label", "deployment", "web", "tier=front")
    await dry.kubectl("set", "image", "deployment/web", "web=nginx:2")
    await dry.kubectl("scale", "deployment/web", "--replicas=3")
    await dry.send("apply", _deployment("nginx:4"), flags=("--server-side", "--force-conflicts"))
    listed = json.loads(await dry.kubectl("get", "deployments", "-l", "tier=front", "-ojson"))
    assert [each["metadata"]["name"] for each in listed["items"]] == ["web"]
    after = _one(dry_run).after
    assert after is not None
    assert after["spec"]["replicas"] == 3
    assert [each["image"] for each in after["spec"]["template"]["spec"]["containers"]] == [
        "nginx:4"
    ]
    status, _, error = await dry.done(*dry.command("create", "-f-"), input_=json.dumps(made))
    assert status == 1
    assert "already exists" in error
    assert kubectl.get("deployment", "web") is None

    await dry.kubectl("delete", "deployment", "web", "--wait=false")
    status, _, error = await dry.done(*dry.command("get", "deployment", "web"))
    assert status == 1
    assert "NotFound" in error
    assert dry_run.differences() == []


async def test_a_changed_object_stays_as_it_is_and_later_writes_build_on_the_change(
    dry: Run, dry_run: DryRun, kubectl: Kubectl
) -> None:
    """Only fields that people write are compared; the status is not one of them."""
    metadata = {"name": "web", "annotations": {"a": "b"}}
    before = _deployed(kubectl, {**_deployment(), "metadata": metadata})
    await dry.kubectl("set", "image", "deployment/web", "web=nginx:2")
    await dry.kubectl("annotate", "deployment", "web", "note=a")
    await dry.kubectl("patch", "deployment", "web", "--type=json", _JSON_PATCH)
    found = await dry.get("deployment", "web")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    difference = _one(dry_run)
    assert difference.change.value == "changed"
    assert set(difference.paths) == {
        "metadata.annotations.note",
        "spec.replicas",
        "spec.template.spec.containers[0].image",
    }
    after = kubectl.get("deployment", "web")
    assert after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


_JSON_PATCH = '--patch=[{"op":"replace","path":"/spec/replicas","value":2}]'


@pytest.mark.parametrize("name", ["web", "new"])
async def test_subresources_are_written_in_protobuf(
    dry: Run, dry_run: DryRun, kubectl: Kubectl, name: str
) -> None:
    """As typed Go clients write them, of an object that the run has changed or created."""
    _deployed(kubectl, {**_deployment(), "spec": {**_deployment()["spec"], "replicas": 3}})
    path = f"/apis/apps/v1/namespaces/{kubectl.namespace}/deployments"
    async with client(dry) as http:
        bodies = {}
        for subresource in ("scale", "status"):
            url = f"{path}/web/{subresource}"
            async with http.get(url, headers={hdrs.ACCEPT: PROTOBUF}) as response:
                bodies[subresource] = await response.read()
        await dry.send("apply", {**_deployment("nginx:2"), "metadata": {"name": name}})
        await dry.kubectl("scale", f"deployment/{name}", "--replicas=1")
        for subresource, body in bodies.items():
            url = f"{path}/{name}/{subresource}"
            headers = {hdrs.CONTENT_TYPE: PROTOBUF}
            async with http.put(url, data=body, headers=headers) as response:
                assert response.status == 200, await response.text()
    after = _one(dry_run).after
    assert after is not None
    assert (after["metadata"]["name"], after["spec"]["replicas"]) == (name, 3)
    live = kubectl.get("deployment", "web")
    assert live is not None
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1"


async def test_a_deletion_and_a_second_creation_are_shown_as_a_change(
    dry: Run, dry_run: DryRun, kubectl: Kubectl
) -> None:
    """`kubectl delete` sends options, which would hide a `dryRun` in the query."""
    kubectl.apply(config_map("settings", a="1"), config_map("other"))
    await dry.kubectl("delete", "configmap", "settings", "other", "--wait=false")
    assert _texts(dry_run) == ["ConfigMap settings deleted", "ConfigMap other deleted"]
    await dry.send("create", config_map("settings", a="2"))
    assert (await dry.get("configmap", "settings"))["data"] == {"a": "2"}
    await dry.kubectl("patch", "configmap", "settings", '--patch={"data":{"b":"3"}}')
    assert _texts(dry_run) == ["ConfigMap settings changed", "ConfigMap other deleted"]
    await dry.kubectl("delete", "configmaps", "--all", "--wait=false")
    stored = kubectl.get("configmap", "settings")
    assert stored is not None
    assert stored["data"] == {"a": "1"}


async def test_values_of_secrets_are_masked(dry: Run, dry_run: DryRun, kubectl: Kubectl) -> None:
    """A changed value is shown as changed."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}}
    kubectl.apply({**secret, "stringData": {"user": "anna", "password": "one"}})
    await dry.send("apply", {**secret, "stringData": {"user": "anna", "password": "two"}})
    difference = _one(dry_run)
    assert difference.before is not None
    assert difference.after is not None
    assert difference.before["data"] == {"user": "***", "password": "*** (before)"}
    assert difference.after["data"] == {"user": "***", "password": "*** (after)"}
    assert "annotations" not in difference.after["metadata"]


async def test_objects_in_a_new_namespace_are_shown(
    dry: Run, dry_run: DryRun, kubectl: Kubectl, namespace: str
) -> None:
    """The API server cannot check them: the namespace does not exist."""
    name = f"{namespace}-new"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await dry.send("apply", made, config_map("settings", name, a="1"))
    await dry.send("apply", config_map("settings", name, a="2"))
    assert (await dry.get("configmap", "settings", "-n", name))["data"] == {"a": "2"}
    assert _texts(dry_run) == [f"Namespace {name} created", "ConfigMap settings created"]
    assert kubectl.get("namespace", name) is None


async def test_requests_that_cannot_be_previewed_are_refused_and_named(
    dry: Run, dry_run: DryRun, namespace: str
) -> None:
    """What they do is not an object of the API."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for args in (
        ("get", "--raw", f"{pods}/web:80/proxy/drop-database"),
        ("create", "token", "default"),
        ("create", "--raw", f"{pods}/web/eviction", "-f-"),
    ):
        status, _, error = await dry.done(*dry.command(*args), input_="{}")
        assert status == 1
        assert "cannot be previewed" in error
    assert dry_run.refused == [
        f"GET {pods}/web:80/proxy/drop-database",
        f"POST /api/v1/namespaces/{namespace}/serviceaccounts/default/token",
        f"POST {pods}/web/eviction",
    ]


async def test_events_are_neither_created_nor_deleted(
    dry: Run, dry_run: DryRun, kubectl: Kubectl, namespace: str
) -> None:
    """They are not shown; a deletion of them has options too."""
    about = {"kind": "ConfigMap", "name": "a", "namespace": namespace}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "old"}}
    kubectl.apply({**event, "involvedObject": about})
    await dry.send("create", {**event, "metadata": {"name": "new"}, "involvedObject": about})
    await dry.kubectl("delete", "event", "old", "--wait=false")
    await dry.kubectl("delete", "events", "--all", "--wait=false")
    assert kubectl.get("event", "old") is not None
    assert kubectl.get("event", "new") is None
    assert dry_run.differences() == []


async def test_reviews_are_answered(dry: Run, dry_run: DryRun) -> None:
    """They are writes to the API that store nothing."""
    assert (await dry.kubectl("auth", "can-i", "get", "pods")).strip() == "yes"
    assert dry_run.differences() == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/yaml", b"a: &a 1\nb: *a"),
        ("application/json", b"{"),
        ("application/json", b'{"metadata": "x"}'),
        ("application/json", b"[" * 100_000),
    ],
    ids=["alias", "incomplete", "metadata", "deep"],
)
async def test_a_malformed_body_is_a_400(
    dry: Run, dry_run: DryRun, namespace: str, kind: str, body: bytes
) -> None:
    """Also for an object that the run has written, to which the proxy applies it itself."""
    await dry.send("create", config_map("settings", a="1"))
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    headers = {"Content-Type": kind}
    async with client(dry) as http:
        async with http.post(path, data=body, headers=headers) as response:
            assert response.status == 400
        async with http.put(f"{path}/settings", data=body, headers=headers) as response:
            assert response.status == 400
    assert _texts(dry_run) == ["ConfigMap settings created"]


async def test_pages_of_a_list_have_each_object_once(
    dry: Run, kubectl: Kubectl, namespace: str
) -> None:
    """Changed ones in their place, and created ones on the last page."""
    kubectl.apply(*(config_map(name, a="1") for name in ("a", "b", "c")))
    await dry.send("apply", config_map("a", a="2"), config_map("d", a="2"))
    await dry.kubectl("delete", "configmap", "b", "--wait=false")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    names: list[str] = []
    token = ""
    async with client(dry) as http:
        while token or not names:
            params = {"limit": "1", "continue": token}
            async with http.get(path, params=params) as response:
                page = await response.json()
            names += [each["metadata"]["name"] for each in page["items"]]
            token = page["metadata"].get("continue", "")
    assert sorted(set(names) - {"kube-root-ca.crt"}) == ["a", "c", "d", "owner"]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b'{"items": ["' + b"x" * MAX_RESPONSE_BYTES + b'"]}', "larger than"),
        (b"[]", "not an object"),
        (b"<html>", "not JSON"),
    ],
    ids=["large", "list", "html"],
)
async def test_a_response_that_cannot_be_used_is_a_502(
    upstream: Upstream, dry_run: DryRun, response: bytes, problem: str
) -> None:
    """With the reason; a list of any length is not read into memory."""
    path = "/api/v1/namespaces/team/configmaps"
    dry_run.record(ObjectKey("", "configmaps", "team", "a"), None, config_map("a", "team"))

    run = await upstream(serving(response), dry_run=dry_run)
    async with client(run) as http, http.get(path) as found:
        assert found.status == 502
        assert problem in (await found.json())["message"]


async def test_a_deep_object_in_a_list_harms_no_other(upstream: Upstream, dry_run: DryRun) -> None:
    """As in a run that writes: its values that are nested too deep are empty, with a warning."""
    deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
    hostile = b'{"metadata":{"name":"hostile","namespace":"team"},"spec":' + deep + b"}"
    other = config_map("other", "team", a="1")
    body = (
        b'{"kind":"ConfigMapList","items":[' + hostile + b"," + json.dumps(other).encode() + b"]}"
    )
    path = "/api/v1/namespaces/team/configmaps"
    dry_run.record(ObjectKey("", "configmaps", "team", "a"), None, config_map("a", "team"))

    run = await upstream(serving(body), dry_run=dry_run)
    with structlog.testing.capture_logs() as lines:
        async with client(run) as http, http.get(path) as found:
            assert found.status == 200
            shown, kept, written = (await found.json())["items"]
    assert (shown["metadata"]["name"], height(shown)) == ("hostile", MAX_DEPTH + 1)
    assert (kept, written["metadata"]["name"]) == (other, "a")
    assert [line["objects"] for line in lines if line["log_level"] == "warning"] == ["team/hostile"]


async def test_a_redirect_is_not_followed(upstream: Upstream, dry_run: DryRun) -> None:
    """It would send the operator's credentials, and a write without a dry run, elsewhere."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        heads.append(head.partition(" HTTP")[0])
        lines = ("HTTP/1.1 307 Temporary Redirect", "Location: /elsewhere", "Content-Length: 0")
        writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode())
        await writer.drain()
        await reader.read()

    run = await upstream(serve, dry_run=dry_run, inject_owner_ref=False)
    path = "/api/v1/namespaces/team/configmaps"
    async with client(run) as http, http.post(path, json=config_map("a")) as found:
        assert found.status == 502
        assert "redirects" in (await found.json())["message"]
    assert heads == [f"POST {path}?dryRun=All"]
