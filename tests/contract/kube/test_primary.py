"""Watches of custom resources by kopf, against a scripted API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from operator_runner.controller.predicates.primary_events import SeenResources
from operator_runner.controller.sources.primary import PrimaryWatcher
from operator_runner.core.errors import Expired, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef, RunContent, Watch
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.session import connect
from tests.contract.kube.scripted import ScriptedServer, hang, status, stream

GADGET = ApiResource(GVK("example.com", "v1", "Gadget"), "gadgets", namespaced=True)
NAMESPACE = ApiResource(GVK("", "v1", "Namespace"), "namespaces", namespaced=False)
WIDGET = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", namespaced=True)


class ApiServer:
    """Serves kinds without objects, and counts the watches that are open."""

    def __init__(self, *served: ApiResource) -> None:
        """Serve these."""
        self.open_watches = 0
        self.changed = asyncio.Condition()
        self._served = {resource.path() for resource in served}
        version = {"groupVersion": "example.com/v1", "version": "v1"}
        group = {"name": "example.com", "versions": [version], "preferredVersion": version}
        self._answers: dict[str, Json] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [_entry(NAMESPACE)]},
            "/apis": {"groups": [group]},
            "/apis/example.com/v1": {"resources": [_entry(resource) for resource in served]},
        }
        if not served:
            self._answers["/apis"] = {"groups": []}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in self._answers:
            return web.json_response(self._answers[request.path])
        if request.path not in self._served:
            return status(404)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        return await self.watch(request)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Open a watch without events; it is counted until the client closes its connection."""
        response = web.StreamResponse()
        await response.prepare(request)
        await self._count(1)
        try:
            return await hang(request)
        finally:
            await self._count(-1)

    async def wait_for_watches(self, count: int) -> None:
        """Return when exactly this number of watches is open."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.open_watches == count)

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.open_watches += change
            self.changed.notify_all()


class Events:
    """The resources that a watcher has shown, in order, with None for a deleted one."""

    def __init__(self) -> None:
        """Start empty."""
        self.queue: asyncio.Queue[tuple[ObjectRef, Json | None]] = asyncio.Queue()

    def add(self, ref: ObjectRef, body: Json | None) -> None:
        self.queue.put_nowait((ref, body))

    async def next(self) -> tuple[str, Json | None]:
        """Return name and body of the next one."""
        async with asyncio.timeout(60):
            ref, body = await self.queue.get()
        return ref.name, body


def _entry(resource: ApiResource) -> Json:
    return {
        "name": resource.plural,
        "singularName": resource.plural.removesuffix("s"),
        "kind": resource.gvk.kind,
        "namespaced": resource.namespaced,
        "verbs": ["list", "watch"],
    }


def _widget(name: str, version: int, spec: str = "{}") -> str:
    """Return the JSON of a widget whose spec is given as JSON."""
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}
    return f'{{"metadata":{json.dumps(metadata)},"spec":{spec}}}'


@asynccontextmanager
async def watching(
    server: ScriptedServer, resources: Sequence[ApiResource], events: Events
) -> AsyncIterator[asyncio.Task[None]]:
    """Watch these kinds; the connection stays open until the block ends."""
    connection = await connect(server.kubeconfig(), user_agent="tests")
    content = RunContent(role=Path("/roles/foo"))
    watcher = PrimaryWatcher(
        [Watch(resource.gvk, content) for resource in resources],
        lambda *_: None,
        lambda *_: None,
        SeenResources(),
    )
    watcher.add_listener(events.add)
    task = asyncio.create_task(watcher.run(connection, resources, [], lambda: None))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connection.close()


async def test_every_kind_is_watched_until_cancelled(scripted: ScriptedServer) -> None:
    """The kinds share one kopf operator, and nothing of it runs on afterwards."""
    server = ApiServer(GADGET, WIDGET)
    scripted.answer = server.answer
    async with watching(scripted, [GADGET, WIDGET], Events()) as task:
        await server.wait_for_watches(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_for_watches(0)


@pytest.mark.parametrize("served", [[GADGET], []], ids=["plural", "group version"])
async def test_a_kind_that_the_api_server_does_not_serve_yet(
    scripted: ScriptedServer, served: list[ApiResource]
) -> None:
    """It raises NotFound, because kopf scans once; no watch of another kind runs on."""
    server = ApiServer(*served)
    scripted.answer = server.answer
    async with watching(scripted, [GADGET, WIDGET], Events()) as task:
        with pytest.raises(NotFound, match="not all API servers serve it yet"):
            async with asyncio.timeout(60):
                await task
        await server.wait_for_watches(0)


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_kind_that_is_deleted_while_it_is_watched(
    scripted: ScriptedServer, verb: str
) -> None:
    """It raises NotFound and ends the watches of the other kinds."""
    server = ApiServer(GADGET, WIDGET)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == GADGET.path() and ("watch" in request.query) == (verb == "watch"):
            await server.wait_for_watches(1)
            return status(404, "the server could not find the requested resource")
        return await server.answer(request)

    scripted.answer = answer
    async with watching(scripted, [GADGET, WIDGET], Events()) as task:
        with pytest.raises(NotFound, match="could not find the requested resource"):
            async with asyncio.timeout(60):
                await task
        await server.wait_for_watches(0)


async def test_a_list_that_expires_between_two_pages(scripted: ScriptedServer) -> None:
    """It raises Expired and ends the watches of the other kinds."""
    server = ApiServer(GADGET, WIDGET)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == GADGET.path():
            if "continue" in request.query:
                await server.wait_for_watches(1)
                return status(410, "The provided continue parameter is too old")
            return web.json_response({"metadata": {"continue": "next"}, "items": []})
        return await server.answer(request)

    scripted.answer = answer
    async with watching(scripted, [GADGET, WIDGET], Events()) as task:
        with pytest.raises(Expired, match="continue parameter is too old"):
            async with asyncio.timeout(60):
                await task
        await server.wait_for_watches(0)


async def test_a_watch_resumes_where_it_ended_and_lists_again_after_410(
    scripted: ScriptedServer,
) -> None:
    """Pages have 20 objects; watches have a timeout of 300 seconds."""
    server = ApiServer(WIDGET)
    queries: list[dict[str, str]] = []
    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    watches = [
        f'{{"type":"ADDED","object":{_widget("a", 7)}}}',
        json.dumps(expired),
        f'{{"type":"ADDED","object":{_widget("b", 9)}}}',
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path != WIDGET.path():
            return await server.answer(request)
        queries.append(dict(request.query))
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})
        return (
            await stream(request, watches.pop(0).encode() + b"\n")
            if watches
            else await hang(request)
        )

    scripted.answer = answer
    events = Events()
    async with watching(scripted, [WIDGET], events):
        shown = [await events.next() for _ in range(3)]
    assert [name for name, _ in shown] == ["a", "a", "b"]
    assert shown[1][1] is None, "a deletion while there was no watch"
    assert [query.get("resourceVersion") for query in queries[:5]] == [None, "5", "7", None, "5"]
    assert [query.get("limit") for query in queries[:5]] == ["20", None, None, "20", None]
    assert [query.get("timeoutSeconds") for query in queries[:3]] == [None, "300", "300"]


async def test_a_resource_is_missing_only_if_no_page_lists_it(scripted: ScriptedServer) -> None:
    """The list after 410 has two pages, of which one lists `b`."""
    server = ApiServer(WIDGET)
    pages = [(["a", "b"], ""), (["c"], "next"), (["b"], "")]
    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    watches = [json.dumps(expired).encode() + b"\n"]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path != WIDGET.path():
            return await server.answer(request)
        if "watch" in request.query:
            return await (stream(request, watches.pop(0)) if watches else hang(request))
        names, token = pages.pop(0)
        items = [json.loads(_widget(name, 5)) for name in names]
        metadata = {"resourceVersion": "5", "continue": token}
        return web.json_response({"metadata": metadata, "items": items})

    scripted.answer = answer
    events = Events()
    async with watching(scripted, [WIDGET], events):
        shown = [await events.next() for _ in range(5)]
    exists = {name: body is not None for name, body in shown}
    assert exists == {"a": False, "b": True, "c": True}


async def test_objects_beyond_the_bounds_are_delivered_as_outlines(
    scripted: ScriptedServer,
) -> None:
    """Of a list and of a watch: kopf decodes nothing of an object that is nested too deep."""
    server = ApiServer(WIDGET)
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path != WIDGET.path():
            return await server.answer(request)
        if "watch" in request.query:
            line = f'{{"type":"ADDED","object":{_widget("b", 6, deep)}}}\n'
            return await stream(request, line.encode(), stay=True)
        items = f'{{"metadata":{{"resourceVersion":"5"}},"items":[{_widget("a", 5, deep)}]}}'
        return web.Response(text=items, content_type="application/json")

    scripted.answer = answer
    events = Events()
    async with watching(scripted, [WIDGET], events):
        shown = dict([await events.next(), await events.next()])
    assert {name: body and body["spec"] for name, body in shown.items()} == {"a": {}, "b": {}}
