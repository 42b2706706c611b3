"""Answers of Pods with the label of operators, which others could have created."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import GVK, Json
from operator_runner.kube.discovery import ApiResource
from operator_runner.telemetry.runs.received import check_drift, check_run
from operator_runner.tools.operator_api.client import OperatorClient, base_of
from operator_runner.tools.operator_api.discovery import Operators
from operator_runner.tools.operator_api.run_history import newest
from operator_runner.tools.operator_api.watched_kinds import watched_kinds
from operator_runner.tools.resources.cluster import ClusterView
from operator_runner.tools.runs.reading import find_run, unlisted_run

RUN: Json = {
    "id": "1",
    "resource": {"apiVersion": "example.com/v1", "kind": "Page", "name": "home"},
    "outcome": "succeeded",
    "started": "2026-01-01T12:00:00Z",
}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session as the commands have it."""
    async with aiohttp.ClientSession() as session:
        yield session


@asynccontextmanager
async def answering(
    http: aiohttp.ClientSession, name: str, answer: web.Response, seen: list[str] | None = None
) -> AsyncIterator[OperatorClient]:
    """Serve one answer at all paths, which are added to `seen`."""

    async def handle(request: web.BaseRequest) -> web.Response:
        (seen if seen is not None else []).append(request.path)
        return answer

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield OperatorClient(name, http, base_of(f"http://127.0.0.1:{runner.addresses[0][1]}"))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "forged",
    [
        {"items": [{"resource": "x"}]},
        {"items": {"id": "1"}},
        {"items": [RUN, "x"]},
        {},
    ],
)
async def test_an_invalid_answer_is_reported_and_those_of_others_are_kept(
    http: aiohttp.ClientSession, forged: Json
) -> None:
    """The items of the others name their operator."""
    async with (
        answering(http, "Pod x/forged", web.json_response(forged)) as bad,
        answering(http, "Pod x/manager", web.json_response({"items": [RUN]})) as good,
    ):
        operators = Operators([bad, good])
        assert await operators.collect("/runs", check_run) == [{**RUN, "operator": "Pod x/manager"}]
        assert operators.clients == [good]
        assert [each.partition(":")[0] for each in operators.invalid] == [
            "invalid response from Pod x/forged"
        ]


async def test_an_operator_that_does_not_name_its_kinds_does_not_answer(
    http: aiohttp.ClientSession,
) -> None:
    """Otherwise the page would take it for one that watches nothing any more."""
    async with answering(http, "Pod x/ending", web.Response(status=503)) as ending:
        operators = Operators([ending])
        assert await watched_kinds(operators) == frozenset()
        assert operators.clients == []


async def test_an_operator_of_an_earlier_version_lacks_a_list_and_has_others(
    http: aiohttp.ClientSession,
) -> None:
    """Only if the list is optional. So does one whose list RBAC does not grant to the user."""
    for status, is_kept in ((404, True), (403, True), (503, False)):
        async with answering(http, "Pod x/old", web.Response(status=status)) as old:
            operators = Operators([old])
            assert await operators.collect("/drift", check_drift, optional=True) == []
            assert (bool(operators.clients), bool(operators.faults)) == (is_kept, not is_kept)
            assert await operators.collect("/drift", check_drift) == []
            assert operators.clients == []


async def test_of_several_copies_the_first_one_counts(http: aiohttp.ClientSession) -> None:
    """The Pod with the Lease is the first: others may forge."""
    names = ("system/leader", "x/forged")
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(answering(http, f"Pod {name}", web.json_response(RUN)))
            for name in names
        ]
        run, client = await find_run(Operators(clients), "1")
    assert (run["operator"], client.name) == ("Pod system/leader", "Pod system/leader")
    named = [{**RUN, "operator": f"Pod {name}"} for name in names]
    assert [each["operator"] for each in newest(named)] == ["Pod system/leader"]


class _Resource:
    """Implements what `unlisted_run` needs of the API server: one resource, or an error."""

    def __init__(self, uid: str | None) -> None:
        self._uid = uid

    async def request(self, _method: str, path: str) -> Json:
        """Return the resource, if it exists."""
        if self._uid is None:
            raise NotFound(path)
        return {"metadata": {"uid": self._uid}}


@pytest.mark.parametrize(
    ("answer", "uid", "outcome"),
    [
        ((200, {"outcome": "failed"}), "1", "failed"),
        ((404, {}), None, "deleted"),
        ((404, {}), "2", "deleted"),
        ((404, {}), "1", "running"),
        ((503, {}), None, "running"),
    ],
)
async def test_a_watched_run_that_is_not_listed_has_ended_or_its_resource_is_deleted(
    http: aiohttp.ClientSession, answer: tuple[int, Json], uid: str | None, outcome: str
) -> None:
    """Operators drop the runs of a deleted resource; another one may have its name."""
    gvk = GVK("example.com", "v1", "Page")
    cluster = ClusterView(_Resource(uid), [ApiResource(gvk, "pages", True)], "web")  # type: ignore[arg-type]
    status, fields = answer
    resource = {**RUN["resource"], "namespace": "web", "uid": "1"}
    run = {**RUN, "resource": resource, "outcome": "running", "operator": "Pod x/manager"}
    response = web.json_response({**run, **fields}, status=status)
    async with answering(http, "Pod x/manager", response) as client:
        found = await unlisted_run(cluster, Operators([client]), run)
        elsewhere = {**run, "operator": "Pod x/lost"}
        assert await unlisted_run(cluster, Operators([client]), elsewhere) == elsewhere
    assert (found["id"], found["outcome"]) == ("1", outcome)


async def test_a_redirect_is_not_followed(http: aiohttp.ClientSession) -> None:
    """It would send the user's token elsewhere."""
    seen: list[str] = []
    elsewhere = web.Response(status=302, headers={"Location": "/elsewhere"})
    async with answering(http, "Pod x/forged", elsewhere, seen) as client:
        with pytest.raises(ApiError, match="HTTP 302"):
            await client.get("/runs")
    assert seen == ["/api/v1/runs"]


@pytest.mark.parametrize("status", [200, 500])
async def test_a_large_answer_is_not_read(http: aiohttp.ClientSession, status: int) -> None:
    """Neither a document nor an error fills the memory."""
    large = web.Response(status=status, body=b" " * (33 * 1024 * 1024))
    async with answering(http, "Pod x/forged", large) as client:
        with pytest.raises(ApiError, match="invalid response from Pod x/forged: larger than"):
            await client.get("/runs")
