"""Reads are the API server's own: long lists, watches, large answers, and no further right."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from operator_runner.core.model import Json
from operator_runner.devcluster import Cluster
from operator_runner.kube.session import Connection, connect
from tests.support.kubectl import Kubectl

from .conftest import SECONDS, WATCH, Recorder, Run, config_map, owners, proxied

PAGE = 500
"""Objects in one page of kubectl."""


def client(run: Run) -> aiohttp.ClientSession:
    """Give an HTTP client with the run's token."""
    server, authority, token = run.server
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority))
    headers = {"Authorization": f"Bearer {token}"}
    return aiohttp.ClientSession(server, connector=connector, headers=headers)


async def test_kubectl_gets_more_objects_than_a_page_holds(
    run: Run, connection: Connection, namespace: str
) -> None:
    """A plain `kubectl get` of more objects than its page holds returns all of them."""
    url = connection.url(f"/api/v1/namespaces/{namespace}/secrets")

    async def make(numbers: range) -> None:
        for number in numbers:
            body = {"metadata": {"name": f"s{number}"}}
            async with connection.http.post(url, json=body) as response:
                assert response.status == 201

    count = PAGE + 1
    await asyncio.gather(*(make(range(start, count, 10)) for start in range(10)))
    found = await run.kubectl("get", "secrets", "--no-headers")
    assert len(found.splitlines()) == count


async def test_a_watch_of_one_object_sends_its_events_alone(run: Run) -> None:
    """A watch with a field selector sends events, and those of that object alone."""
    await run.kubectl("create", "configmap", "other")
    selected = ("--field-selector=metadata.name=owner", "--output-watch-events", "--output=json")
    watch = await run.start(*run.command("get", "configmaps", "--watch", *selected))
    assert watch.stdout is not None
    events: list[Json] = []
    text = ""
    async with asyncio.timeout(SECONDS):
        while len(events) < 2:
            text += (await watch.stdout.readline()).decode()
            try:
                events.append(json.loads(text))
            except ValueError:
                continue  # an event is printed over many lines
            text = ""
            if len(events) == 1:
                for name in ("other", "owner"):
                    await run.kubectl("label", "configmap", name, "a=b")
    watch.kill()
    await watch.wait()
    reported = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert reported == [("ADDED", "owner"), ("MODIFIED", "owner")]


async def test_objects_of_many_megabytes_are_listed(run: Run, namespace: str) -> None:
    """Objects as large as etcd takes them are created, owned, and listed together."""
    size = 1_000_000
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with client(run) as http:
        for number in range(6):
            body = config_map(f"large-{number}", a="x" * size)
            async with http.post(path, json=body) as response:
                assert response.status == 201
        async with http.get(path) as response:
            items = json.loads(await response.read())["items"]
    large = [item for item in items if item["metadata"]["name"] != "owner"]
    kept = [item for item in large if "a" in (item.get("data") or {})]
    assert [len(item["data"]["a"]) for item in kept] == [size] * 6
    assert [owners(item) for item in kept] == [["owner"]] * 6


async def test_tables_are_returned_on_request(run: Run, namespace: str) -> None:
    """Lists and single objects come as tables to clients that print them."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with client(run) as http:
        for each in (path, f"{path}/owner"):
            async with http.get(each, headers={"Accept": accept}) as response:
                table = await response.json()
            assert table["kind"] == "Table"
            assert "owner" in [row["cells"][0] for row in table["rows"]]


@pytest.fixture
async def getter(kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[Connection]:
    """Connect as an operator that may get ConfigMaps and nothing else."""
    kubectl("create", "serviceaccount", "getter")
    kubectl("create", "role", "getter", "--verb=get", "--resource=configmaps")
    account = f"{kubectl.namespace}:getter"
    kubectl("create", "rolebinding", "getter", "--role=getter", f"--serviceaccount={account}")
    kubectl.wait_for_permission(f"system:serviceaccount:{account}", "get", "configmaps")
    token = kubectl.token("getter")
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    file = tmp_path / "getter.kubeconfig"
    file.write_text(json.dumps(config))
    opened = await connect(file, user_agent="operator-runner/test")
    yield opened
    await opened.close()


async def test_a_get_needs_no_more_than_get(
    getter: Connection, owner: Json, recorder: Recorder, tmp_path: Path, run: Run
) -> None:
    """A read is one request to the API server: without the rights to list and watch it works."""
    responses: list[tuple[int | None, str]] = []
    getter.on_response(lambda status, method, _: responses.append((status, method)))
    path = f"/api/v1/namespaces/{owner['metadata']['namespace']}/configmaps"
    async with proxied(getter, recorder) as proxy:
        with proxy.grant(owner, WATCH, "run-1") as text:
            limited = Run(tmp_path / "limited", run.bin)
            limited.kubeconfig.write_text(text)
            async with client(limited) as http:
                async with http.get(f"{path}/owner") as response:
                    assert (await response.json())["metadata"]["name"] == "owner"
                async with http.get(path) as response:
                    assert (await response.json())["reason"] == "Forbidden"
            assert responses == [(200, "GET"), (403, "GET")]
            assert "owner" in await limited.kubectl("get", "configmap", "owner", "--output=name")


@pytest.fixture
def dead_api(control_plane_cluster: Cluster) -> Iterator[None]:
    """Register an aggregated API whose server does not exist."""
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    name = "v1.dead.example.com"
    service = {"name": "nobody", "namespace": "default"}
    spec = {
        "group": "dead.example.com",
        "version": "v1",
        "service": service,
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    kubectl.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
    kubectl("wait", "--for=condition=Available=False", f"apiservice/{name}", "--timeout=180s")
    yield
    kubectl("delete", "apiservice", name)


@pytest.mark.usefixtures("dead_api")
async def test_a_dead_aggregated_api_does_not_affect_other_objects(
    run: Run, recorder: Recorder
) -> None:
    """While one API is away, objects of all others are created, owned, changed and deleted."""
    flags = ("--validate=false",)
    await run.kubectl("create", "deployment", "web", "--image=nginx")
    await run.send("create", config_map("alive"), flags=flags)
    assert owners(await run.get("configmap", "alive")) == ["owner"]
    await run.send("apply", config_map("alive", a="1"), flags=("--server-side", *flags))
    await run.kubectl("scale", "deployment", "web", "--replicas=2")
    await run.kubectl("delete", "deployment", "web", "--wait=false")
    verbs = [(dependent.gvk.kind, verb) for dependent, _, verb in recorder.written]
    assert verbs == [
        ("Deployment", "create"),
        ("ConfigMap", "create"),
        ("ConfigMap", "patch"),
        ("Deployment", "patch"),
        ("Deployment", "delete"),
    ]
