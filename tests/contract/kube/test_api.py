"""Requests: each way in which an API server refuses, and each in which it fails."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from operator_runner.core.errors import ApiError, Conflict, Expired, Invalid, NotFound, Unavailable
from operator_runner.kube.api import Api
from tests.contract.kube.scripted import ScriptedServer, status


def _config_map(name: str, **fields: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


async def test_refusals_keep_the_servers_message(api: Api, namespace: str) -> None:
    """404, 409 and 422 have their own errors, with the message of the API server."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    await api.request("POST", path, body=_config_map("one"))

    with pytest.raises(NotFound, match='configmaps "two" not found') as caught:
        await api.request("GET", f"{path}/two")
    assert caught.value.status == 404
    with pytest.raises(Conflict, match="already exists"):
        await api.request("POST", path, body=_config_map("one"))
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await api.request("POST", path, body=_config_map("Not A Name"))


async def test_a_throttled_request_waits_for_retry_after(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """A 429 with Retry-After was not carried out, so even a POST is repeated."""
    answers = [status(429, "slow down", **{"Retry-After": "0"}), web.json_response({"ok": 1})]

    async def answer(_: web.Request) -> web.Response:
        return answers.pop(0)

    scripted.answer = answer

    assert await scripted_api.request("POST", "/apis", body={}) == {"ok": 1}


@pytest.mark.parametrize(
    ("code", "expected"),
    [(429, Unavailable), (500, Unavailable), (503, Unavailable), (410, Expired), (400, ApiError)],
)
async def test_other_errors_keep_their_status(
    scripted: ScriptedServer, scripted_api: Api, code: int, expected: type[ApiError]
) -> None:
    """Overload and server errors are worth a retry; the rest is the request's own fault."""

    async def answer(_: web.Request) -> web.Response:
        return status(code, "because")

    scripted.answer = answer

    with pytest.raises(ApiError, match="because") as caught:
        await scripted_api.request("GET", "/apis")
    assert (type(caught.value), caught.value.status) == (expected, code)


async def test_an_api_server_that_hangs_is_unavailable(scripted_api: Api) -> None:
    """No response within the timeout is an error with this reason."""
    with pytest.raises(Unavailable, match=r"no response within 0\.2 s"):
        await scripted_api.request("GET", "/apis", timeout=0.2)


async def test_an_api_server_that_is_down_is_unavailable(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """The error has the server, the reason of the system, and the solution."""
    await scripted.stop()

    with pytest.raises(Unavailable, match=scripted.url) as caught:
        await scripted_api.request("GET", "/apis")
    assert "(Connection refused); check that the API server is running" in str(caught.value)


async def test_an_answer_that_breaks_off_is_unavailable(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """A truncated response is an error."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"half":')
        assert request.transport is not None
        request.transport.close()
        return response

    scripted.answer = answer

    with pytest.raises(Unavailable):
        await scripted_api.request("GET", "/apis")


async def test_an_answer_of_another_server_is_an_error(
    scripted: ScriptedServer, scripted_api: Api
) -> None:
    """A login page with status 200 is not a Kubernetes object."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<html>Log in</html>")

    scripted.answer = answer

    with pytest.raises(ApiError, match="Log in"):
        await scripted_api.request("GET", "/apis")


async def test_cancelling_ends_a_request(scripted_api: Api) -> None:
    """A pending request does not outlive its caller."""
    task = asyncio.create_task(scripted_api.request("GET", "/apis"))
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
