"""Serve the page, its files and its data to this user on this machine."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from typing import NoReturn, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler

from operator_runner.core.errors import ApiError, ConfigError, NotFound
from operator_runner.core.model import Json
from operator_runner.core.texts import printable

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The path has the token.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response."""
_OWN_NAMES = ("127.0.0.1", "localhost")


def refusal(method: str, host: str, path: str, port: int, token: str) -> tuple[int, str] | None:
    """Return status and message for a request that is denied, None for one that is not.

    `host` is its header, `port` that of the server. The first segment of `path` must be `token`.
    """
    if host not in {f"{name}:{port}" for name in _OWN_NAMES}:
        # Another name that resolves to this machine: DNS rebinding.
        return 421, f"invalid Host: open http://127.0.0.1:{port} with the path that was printed"
    if method != "GET":
        return 405, "the page is read-only: use GET"
    given = path.split("/")[1].encode(errors="surrogateescape")
    if not hmac.compare_digest(given, token.encode()):
        return 403, "invalid token: open the URL that `operator-runner ui` has printed"
    return None


@dataclass(frozen=True, slots=True)
class View:
    """A view as it is sent: its name, its content as JSON, and the version of its last change."""

    name: str
    text: str
    version: int


class Feed:
    """The current views. Readers that are slow skip versions; nothing is queued for them."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}
        self._version = 0
        self._changed = asyncio.Event()

    def publish(self, name: str, content: Json) -> None:
        """Replace a view. Nobody is woken if its content is the same."""
        text = json.dumps(content)
        known = self._views.get(name)
        if known is not None and known.text == text:
            return
        self._version += 1
        self._views[name] = View(name, text, self._version)
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer(self, version: int, seconds: float) -> list[View]:
        """Return the views that changed after `version`, oldest first; wait for the first one.

        The list is empty if none has changed within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                while self._version <= version:
                    await self._changed.wait()
        except TimeoutError:
            return []
        found = [each for each in self._views.values() if each.version > version]
        return sorted(found, key=lambda each: each.version)


_ADDRESS = "127.0.0.1"
_KEEPALIVE_SECONDS = 2.0
"""Longest silence of a stream: the page takes a longer one for a lost connection."""
_SHUTDOWN_SECONDS = 1.0
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Details(Protocol):
    """Reads a run or a resource that a user opens. Both methods raise ApiError."""

    async def run(self, run_id: str) -> Json:
        """Return a run with its timelines and its output. Raises NotFound."""

    async def resource(self, key: str) -> Json:
        """Return runs, schedule and objects of a resource. Raises ConfigError for a bad key."""


class _Handlers:
    """The paths below the token."""

    def __init__(self, feed: Feed, details: Details, files: Mapping[str, bytes]) -> None:
        self._feed = feed
        self._details = details
        self._files = files

    def add_routes(self, app: web.Application) -> None:
        """Add all paths; each answers GET alone."""
        for path, handler in (
            ("/", self._index),
            ("/static/{name}", self._file),
            ("/events", self._events),
            ("/runs/{id}", self._run),
            ("/resources/{key:.+}", self._resource),
        ):
            app.router.add_get(f"/{{token}}{path}", handler, allow_head=False)

    async def _index(self, _request: web.Request) -> web.Response:
        return self._content("index.html")

    async def _file(self, request: web.Request) -> web.Response:
        return self._content(request.match_info["name"])

    def _content(self, name: str) -> web.Response:
        if name not in self._files:
            return _error(404, "not found")
        type_ = _TYPES["." + name.rpartition(".")[2]]
        return web.Response(body=self._files[name], content_type=type_, charset="utf-8")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send all views, then each that changes, as server-sent events."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        # A page that is closed ends the stream.
        with suppress(ConnectionResetError):
            await self._send(response)
        return response

    async def _send(self, response: web.StreamResponse) -> NoReturn:
        version = 0
        while True:
            views = await self._feed.newer(version, _KEEPALIVE_SECONDS)
            for view in views:
                await response.write(_event(view))
                version = view.version
            if not views:
                await response.write(b"event: alive\ndata: {}\n\n")

    async def _run(self, request: web.Request) -> web.Response:
        return web.json_response(await self._details.run(request.match_info["id"]))

    async def _resource(self, request: web.Request) -> web.Response:
        return web.json_response(await self._details.resource(request.match_info["key"]))


def _event(view: View) -> bytes:
    # JSON has no line breaks, which would end the event.
    return f"event: {view.name}\ndata: {view.text}\n\n".encode()


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"message": printable(message)}, status=status)


def application(feed: Feed, details: Details, token: str) -> web.Application:
    """Return the server's application; see access.py for the requests that it denies."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        host = request.headers.get("Host", "")
        if (denied := refusal(request.method, host, request.path, port, token)) is not None:
            return _error(*denied)
        try:
            return await handler(request)
        except NotFound as error:
            return _error(404, str(error))
        except ConfigError as error:
            return _error(400, str(error))
        except ApiError as error:
            return _error(502, str(error))

    app = web.Application(middlewares=[check])
    app.on_response_prepare.append(_add_headers)
    _Handlers(feed, details, static_files()).add_routes(app)
    return app


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def static_files() -> dict[str, bytes]:
    """Return the files of the page by name; they are read once."""
    folders = (
        resources.files("operator_runner.tools.ui") / "static",
        resources.files("operator_runner.tools.runs") / "static",
    )
    return {
        each.name: each.read_bytes()
        for folder in folders
        for each in folder.iterdir()
        if f".{each.name.rpartition('.')[2]}" in _TYPES
    }


@asynccontextmanager
async def serving(app: web.Application, port: int) -> AsyncIterator[int]:
    """Serve on loopback inside the block; yield the port, a free one for 0.

    Raises ConfigError if the port cannot be used.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, _ADDRESS, port).start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise ConfigError(
                f"--port={port}: cannot listen on {_ADDRESS} ({reason}); omit it for a free port"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
