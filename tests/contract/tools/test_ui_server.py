"""The server of `operator-runner ui`: who gets an answer, and how changes are pushed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from yarl import URL

from operator_runner.core.errors import ConfigError, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.tools.ui.server import Feed, application, serving

TOKEN = "0123456789"


@dataclass
class Details:
    """What a user opens."""

    opened: list[str] = field(default_factory=list)

    async def run(self, run_id: str) -> Json:
        self.opened.append(run_id)
        if run_id == "none":
            raise NotFound("run none is not kept")
        return {"id": run_id}

    async def resource(self, key: str) -> Json:
        self.opened.append(key)
        raise Unavailable("the cluster does not answer")


@dataclass
class Server:
    """A server in this process, and a client."""

    port: int
    feed: Feed
    details: Details
    http: aiohttp.ClientSession

    def url(self, path: str, token: str = TOKEN) -> URL:
        return URL(f"http://127.0.0.1:{self.port}/{token}{path}", encoded=True)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Serve on a free port of loopback."""
    feed, details = Feed(), Details()
    async with (
        serving(application(feed, details, TOKEN), 0) as port,
        aiohttp.ClientSession() as http,
    ):
        yield Server(port, feed, details, http)


async def test_the_page_has_a_policy_that_permits_its_own_files_alone(server: Server) -> None:
    """Also answers that are errors have these headers, and none permits other origins."""
    for path, status in (("/", 200), ("/static/app.js", 200), ("/static/none", 404)):
        async with server.http.get(server.url(path)) as answer:
            assert answer.status == status
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert not [name for name in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/events", "/runs/1"])
async def test_others_get_no_answer(server: Server, path: str) -> None:
    """Without the token, and with a name that others control."""
    async with server.http.get(server.url(path, "guess")) as answer:
        assert answer.status == 403
    async with server.http.get(
        server.url(path), headers={"Host": f"evil.example.com:{server.port}"}
    ) as answer:
        assert answer.status == 421
    assert server.details.opened == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_only_get_requests_are_answered(server: Server, method: str) -> None:
    """Nothing in the page writes."""
    for path in ("/", "/events", "/runs/1"):
        async with server.http.request(method, server.url(path)) as answer:
            assert answer.status == 405


@pytest.mark.parametrize(
    "name", ["../server.py", "..%2fserver.py", "%2e%2e/%2e%2e/__init__.py", "/etc/passwd", "."]
)
async def test_only_the_files_of_the_page_are_served(server: Server, name: str) -> None:
    """Files are found by name, never by path."""
    async with server.http.get(server.url(f"/static/{name}")) as answer:
        assert answer.status == 404


async def test_a_key_with_slashes_is_one_resource(server: Server) -> None:
    """An error of cluster or operator is a message with a status."""
    async with server.http.get(server.url("/resources/page.example.com%2Fweb%2Fhome")) as answer:
        assert answer.status == 502
        assert await answer.json() == {"message": "the cluster does not answer"}
    async with server.http.get(server.url("/runs/none")) as answer:
        assert answer.status == 404
    assert server.details.opened == ["page.example.com/web/home", "none"]


async def events(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, Json]]:
    """Return the next events that are views."""
    found: list[tuple[str, Json]] = []
    name = ""
    while len(found) < count:
        line = (await answer.content.readline()).decode().strip()
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: ") and name != "alive":
            found.append((name, json.loads(line.removeprefix("data: "))))
    return found


async def test_a_port_in_use_is_an_error_that_names_the_flag() -> None:
    """The solution is to omit it."""
    first, second = (application(Feed(), Details(), TOKEN) for _ in range(2))
    async with serving(first, 0) as port:
        with pytest.raises(
            ConfigError, match=rf"--port={port}: cannot listen .*omit it for a free"
        ):
            async with serving(second, port):
                pass


async def test_a_stream_has_all_views_and_then_those_that_change(server: Server) -> None:
    """Line breaks in a text do not end an event; a new connection gets all views again."""
    server.feed.publish("runs", {"items": ["a\n\nevent: state\u2028"]})
    server.feed.publish("queue", {"items": []})
    async with asyncio.timeout(300), server.http.get(server.url("/events")) as first:
        assert first.content_type == "text/event-stream"
        assert await events(first, 2) == [
            ("runs", {"items": ["a\n\nevent: state\u2028"]}),
            ("queue", {"items": []}),
        ]
        server.feed.publish("queue", {"items": [1]})
        assert await events(first, 1) == [("queue", {"items": [1]})]
    async with asyncio.timeout(300), server.http.get(server.url("/events")) as second:
        assert dict(await events(second, 2))["queue"] == {"items": [1]}


async def test_a_silent_stream_has_signs_of_life(server: Server) -> None:
    """The page takes a longer silence for a lost connection."""
    async with asyncio.timeout(300), server.http.get(server.url("/events")) as answer:
        assert await answer.content.readline() == b"event: alive\n"
