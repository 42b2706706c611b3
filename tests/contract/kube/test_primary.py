"""Watching custom resources where API servers do not agree yet on what there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from operator_runner.controller.sources.primary import PrimaryWatcher
from operator_runner.core.errors import Expired, NotFound
from operator_runner.core.model import GVK, Json, RunContent, Watch
from operator_runner.kube.discovery import Resource
from operator_runner.kube.session import connect
from tests.contract.kube.scripted import ScriptedServer, hang, status

GADGET = Resource(GVK("example.com", "v1", "Gadget"), "gadgets", namespaced=True)
NAMESPACE = Resource(GVK("", "v1", "Namespace"), "namespaces", namespaced=False)
WIDGET = Resource(GVK("example.com", "v1", "Widget"), "widgets", namespaced=True)


class Behind:
    """An API server that knows some of the kinds, and takes note of what is watched."""

    def __init__(self, *known: Resource) -> None:
        """Know these."""
        self.watched: set[str] = set()
        self.all_watched = asyncio.Event()
        self._lists = {resource.path() for resource in known}
        version = {"groupVersion": "example.com/v1", "version": "v1"}
        group = {"name": "example.com", "versions": [version], "preferredVersion": version}
        self._answers: dict[str, Json] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [_entry(NAMESPACE)]},
            "/apis": {"groups": [group]},
            "/apis/example.com/v1": {"resources": [_entry(resource) for resource in known]},
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in self._answers:
            return web.json_response(self._answers[request.path])
        if request.path not in self._lists:
            return status(404)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        self.watched.add(request.path)
        if self.watched == self._lists:
            self.all_watched.set()
        return await hang(request)


def _entry(resource: Resource) -> Json:
    return {
        "name": resource.plural,
        "singularName": resource.plural.removesuffix("s"),
        "kind": resource.gvk.kind,
        "namespaced": resource.namespaced,
        "verbs": ["list", "watch"],
    }


async def watch(server: ScriptedServer) -> None:
    """Watch both kinds until cancelled."""
    connection = await connect(server.kubeconfig(), user_agent="tests")
    content = RunContent(role=Path("/roles/foo"))
    watcher = PrimaryWatcher(
        [Watch(GADGET.gvk, content), Watch(WIDGET.gvk, content)],
        lambda *_: True,
        lambda *_: None,
        lambda *_: None,
    )
    try:
        await watcher.run(connection, [GADGET, WIDGET], [], lambda: None)
    finally:
        await connection.close()


async def test_all_that_is_there_is_watched(scripted: ScriptedServer) -> None:
    """By plural, so that a further resource of the same kind confuses nobody."""
    server = Behind(GADGET, WIDGET)
    scripted.answer = server.answer
    watching = asyncio.create_task(watch(scripted))
    async with asyncio.timeout(60):
        await server.all_watched.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_a_kind_that_only_another_api_server_knows_yet_is_told(
    scripted: ScriptedServer,
) -> None:
    """It would never be looked for again, so whoever watches has to begin anew."""
    scripted.answer = Behind(GADGET).answer
    with pytest.raises(NotFound, match=f"there is {WIDGET.gvk}"):
        async with asyncio.timeout(60):
            await watch(scripted)


async def test_a_list_that_has_expired_between_two_pages_is_told(scripted: ScriptedServer) -> None:
    """Whoever watches begins anew; nothing goes on watching, the other kinds neither."""
    server = Behind(GADGET, WIDGET)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == GADGET.path():
            if "continue" in request.query:
                return status(410, "The provided continue parameter is too old")
            return web.json_response({"metadata": {"continue": "next"}, "items": []})
        return await server.answer(request)

    scripted.answer = answer
    with pytest.raises(Expired, match="continue parameter is too old"):
        async with asyncio.timeout(60):
            await watch(scripted)
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in names if name.startswith("watcher for ")}
