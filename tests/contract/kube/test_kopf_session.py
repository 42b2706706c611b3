"""Sessions for kopf: reports of watches, and bounds on decoded objects."""

from __future__ import annotations

import json

from aiohttp import web

from operator_runner.controller.sources.primary import KopfSession
from operator_runner.kube.api import Api
from operator_runner.kube.session import Connection, connect
from tests.contract.kube.scripted import ScriptedServer, stream


async def test_accepted_watches_are_reported(connection: Connection, namespace: str) -> None:
    """A watch that is answered is reported by its path; a list and a refused watch are not."""
    reported: list[str] = []
    connection.on_watch(reported.append, lambda *_: None)
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async with KopfSession(connection).open() as session:
        await session.get(pods)
        await session.get(pods.replace("pods", "nothings"), params={"watch": "true"})
        async with session.get(pods, params={"watch": "true"}):
            assert reported == [pods]


async def test_the_end_of_a_watch_is_reported(scripted: ScriptedServer) -> None:
    """Both kopf's and our own of metadata; the end of an abandoned one is ignored."""
    scripted.answer = stream
    reported: list[tuple[str, bool]] = []
    connection = await connect(scripted.kubeconfig(), user_agent="tests")
    connection.on_watch(lambda _: None, lambda *end: reported.append(end))

    async with (
        KopfSession(connection).open() as session,
        session.get("/pods", params={"watch": "true"}) as first,
        session.get("/pods", params={"watch": "true"}) as second,
    ):
        assert [part async for part in first.content.iter_chunked(9)] == []
        assert reported == []
        assert [part async for part in second.content.iter_chunked(9)] == []
        assert reported == [("/pods", True)]
    async with Api(connection).stream("/pods", params={}, accept="*/*", idle=60) as parts:
        assert [part async for part in parts] == []
    assert reported[1:] == [("/pods (metadata)", True)]
    await connection.close()


async def test_objects_are_within_bounds(scripted: ScriptedServer) -> None:
    """In lists and in the lines of a watch."""
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    lines = [f'{{"type":"ADDED","object":{{"spec":{spec}}}}}\n' for spec in (deep, "1")]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await stream(request, *(line.encode() for line in lines))
        items = f'{{"items":[{{"spec":{deep}}},{{"spec":1}}]}}'
        return web.Response(text=items, content_type="application/json")

    scripted.answer = answer
    connection = await connect(scripted.kubeconfig(), user_agent="tests")
    async with KopfSession(connection).open() as session:
        listed = await (await session.get("/foos")).json()
        watch = await session.get("/foos", params={"watch": "true"})
        watched = [json.loads(line) async for line in watch.content.iter_chunked(1 << 20)]
    await connection.close()

    assert listed["items"] == [{"spec": {}}, {"spec": 1}]
    assert [event["object"] for event in watched] == listed["items"]
