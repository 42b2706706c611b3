"""Lists of metadata that several readers share: a real API server, and a scripted one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlencode

import pytest
from aiohttp import web

from operator_runner.core.errors import Forbidden
from operator_runner.core.labels import field_selector
from operator_runner.kube.api import Api
from operator_runner.kube.metadata_lists import MetadataLists
from tests.contract.kube.scripted import ScriptedServer, status
from tests.support.kubectl import Kubectl

WIDGETS = "/apis/example.com/v1/widgets"


async def test_a_list_has_the_metadata_of_the_chosen_objects(api: Api, kubectl: Kubectl) -> None:
    """By namespace and name, with the version of the list itself; data is not requested."""
    kubectl("create", "configmap", "a", "--from-literal=key=value")
    kubectl("label", "configmap", "a", "app=x")
    kubectl("create", "configmap", "b")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    lists = MetadataLists(api)
    labelled = await lists.get(path, "labelSelector=app%3Dx")
    assert list(labelled.objects) == [(kubectl.namespace, "a")]
    metadata = labelled.objects[kubectl.namespace, "a"]
    current = kubectl.get("configmap", "a")
    assert current is not None
    for key in ("uid", "resourceVersion", "labels"):
        assert metadata[key] == current["metadata"][key]
    assert int(labelled.resource_version) >= int(metadata["resourceVersion"])
    named = await lists.get(path, "fieldSelector=metadata.name%3Db")
    assert list(named.objects) == [(kubectl.namespace, "b")]
    missing = await lists.get(path, "fieldSelector=metadata.name%3Dc")
    assert (list(missing.objects), missing.resource_version != "") == ([], True)


@pytest.mark.parametrize("name", ["a,b", "a=b", "a\\", "a&limit=1", "a b#c", "é", "system:a"])
async def test_an_object_of_any_name_is_selected(api: Api, kubectl: Kubectl, name: str) -> None:
    """Names of RBAC objects have characters that mean something in selectors and queries."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{kubectl.namespace}/roles"
    for each in (name, "a"):
        await api.request("POST", path, body={"metadata": {"name": each}})
    query = urlencode({"fieldSelector": field_selector("metadata.name", name)})
    found = await MetadataLists(api).get(path, query)
    assert list(found.objects) == [(kubectl.namespace, name)]


async def test_a_list_is_shared_until_a_reader_needs_a_newer_one(
    api: Api, kubectl: Kubectl
) -> None:
    """Concurrent readers share a request; a list that is too old is read again."""
    now = 0.0
    lists = MetadataLists(api, lambda: now)
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    first, second = await asyncio.gather(lists.get(path, max_age=2), lists.get(path, max_age=2))
    assert first is second
    kubectl("create", "configmap", "new")
    now = 1.0
    assert await lists.get(path, max_age=2) is first
    newer = await lists.get(path)
    assert (kubectl.namespace, "new") in newer.objects
    assert int(newer.resource_version) > int(first.resource_version)
    # The newer one is shared from now on.
    assert await lists.get(path, max_age=2) is newer
    now = 5.0
    assert await lists.get(path, max_age=2) is not newer


async def test_a_failed_list_is_not_shared(scripted: ScriptedServer, scripted_api: Api) -> None:
    """All who wait for it get the error, and the next reader sends a request of its own."""

    async def forbid(_: web.Request) -> web.StreamResponse:
        return status(403)

    scripted.answer = forbid
    lists = MetadataLists(scripted_api, lambda: 0.0)
    results = await asyncio.gather(
        *(lists.get(WIDGETS, max_age=2) for _ in range(2)), return_exceptions=True
    )
    assert [type(each) for each in results] == [Forbidden, Forbidden]

    async def permit(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": None})

    scripted.answer = permit
    found = await lists.get(WIDGETS, max_age=2)
    assert (found.resource_version, dict(found.objects)) == ("7", {})


async def test_a_cancelled_reader_leaves_the_list_to_the_others(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """Of all pages, with the version of the last one."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.set()
        await released.wait()
        is_last = "continue" in request.query
        metadata = (
            {"resourceVersion": "8"} if is_last else {"resourceVersion": "7", "continue": "x"}
        )
        item = {"metadata": {"name": "b" if is_last else "a", "namespace": "here"}}
        return web.json_response({"metadata": metadata, "items": [item]})

    scripted.answer = answer
    lists = MetadataLists(scripted_api, lambda: 0.0)
    cancelled = asyncio.create_task(lists.get(WIDGETS, max_age=2))
    await asked.wait()
    waiting = asyncio.create_task(lists.get(WIDGETS, max_age=2))
    cancelled.cancel()
    with suppress(asyncio.CancelledError):
        await cancelled
    released.set()
    found = await waiting
    assert list(found.objects) == [("here", "a"), ("here", "b")]
    assert found.resource_version == "8"
