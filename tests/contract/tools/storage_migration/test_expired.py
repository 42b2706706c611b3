"""Lists with expired continue tokens, and an API server that is unavailable."""

from __future__ import annotations

import pytest
from aiohttp import web

from operator_runner.kube.api import Api
from operator_runner.tools.storage_migration import MigrationTarget, ObjectPage, StoredObjects
from tests.contract.kube.scripted import ScriptedServer, status

_TARGET = MigrationTarget(
    "webs.example.com", "u", 1, "example.com", "webs", "v2", ("v1",), ("v1", "v2")
)


@pytest.fixture
def objects(scripted_api: Api) -> StoredObjects:
    """Return the objects of a CRD that the scripted server serves."""
    return StoredObjects(scripted_api, _TARGET, dry_run=False)


def _expired(continue_token: str) -> web.Response:
    metadata = {"continue": continue_token} if continue_token else {}
    body = {"kind": "Status", "code": 410, "message": "too old", "metadata": metadata}
    return web.json_response(body, status=410)


def _items(*names: str) -> web.Response:
    items = [{"metadata": {"name": name}} for name in names]
    return web.json_response({"metadata": {"continue": ""}, "items": items})


@pytest.mark.parametrize(("offered", "expected"), [("b-later", "b"), ("", "a")])
async def test_after_an_expired_token_the_list_continues_or_restarts(
    scripted: ScriptedServer, objects: StoredObjects, offered: str, expected: str
) -> None:
    """The list continues with the new token of the API server, or else restarts."""

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

    assert await objects.page("b") == ObjectPage(({"name": expected},), "", 0)


async def test_a_version_that_cannot_be_listed_is_replaced_by_another(
    scripted: ScriptedServer, objects: StoredObjects
) -> None:
    """An object that cannot be converted only breaks the list of the storage version."""

    async def answer(request: web.Request) -> web.Response:
        in_storage = request.path.startswith("/apis/example.com/v2/")
        return status(500, "a does not convert") if in_storage else _items("a")

    scripted.answer = answer

    assert await objects.page("") == ObjectPage(({"name": "a"},), "", 0)


async def test_requests_are_retried_while_the_api_server_is_unavailable(
    scripted: ScriptedServer, objects: StoredObjects
) -> None:
    """A response of 503 is retried."""
    answers = [status(503), _items("a")]

    async def answer(_: web.Request) -> web.Response:
        return answers.pop(0)

    scripted.answer = answer

    assert await objects.page("") == ObjectPage(({"name": "a"},), "", 0)
