"""Lists that grow too old in the middle, and an API server that goes away, as a server plays it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from operator_runner.tools.storage_migration.objects import Objects, Page
from operator_runner.tools.storage_migration.target import Target
from tests.contract.kube.scripted import ScriptedServer, status

_TARGET = Target("webs.example.com", "u", 1, "example.com", "webs", "v2", ("v1",), ("v1", "v2"))


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    """Start a server that stands in for an API server in trouble."""
    server = ScriptedServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def objects(scripted: ScriptedServer) -> AsyncIterator[Objects]:
    """Give the objects of a CRD that the server serves."""
    opened = await connect(scripted.kubeconfig(), user_agent="tests")
    yield Objects(Api(opened), _TARGET, dry_run=False)
    await opened.close()


def _expired(continue_token: str) -> web.Response:
    metadata = {"continue": continue_token} if continue_token else {}
    body = {"kind": "Status", "code": 410, "message": "too old", "metadata": metadata}
    return web.json_response(body, status=410)


def _items(*names: str) -> web.Response:
    items = [{"metadata": {"name": name}} for name in names]
    return web.json_response({"metadata": {"continue": ""}, "items": items})


@pytest.mark.parametrize(("offered", "expected"), [("b-later", "b"), ("", "a")])
async def test_an_expired_token_goes_on_or_begins_anew(
    scripted: ScriptedServer, objects: Objects, offered: str, expected: str
) -> None:
    """The API server's new token is taken; without one the list begins at its first object."""

    async def answer(request: web.Request) -> web.Response:
        match request.query.get("continue"):
            case "b":
                return _expired(offered)
            case "b-later":
                return _items("b")
            case other:
                assert other is None
                return _items("a")

    scripted.answer = answer

    assert await objects.page("b") == Page(({"name": expected},), "", 0)


async def test_a_version_that_cannot_be_listed_is_replaced_by_another(
    scripted: ScriptedServer, objects: Objects
) -> None:
    """One object that does not convert spoils the list of the storage version alone."""

    async def answer(request: web.Request) -> web.Response:
        in_storage = request.path.startswith("/apis/example.com/v2/")
        return status(500, "a does not convert") if in_storage else _items("a")

    scripted.answer = answer

    assert await objects.page("") == Page(({"name": "a"},), "", 0)


async def test_an_api_server_that_is_away_for_a_moment_is_waited_for(
    scripted: ScriptedServer, objects: Objects
) -> None:
    """A 503 is no refusal."""
    answers = [status(503), _items("a")]

    async def answer(_: web.Request) -> web.Response:
        return answers.pop(0)

    scripted.answer = answer

    assert await objects.page("") == Page(({"name": "a"},), "", 0)
