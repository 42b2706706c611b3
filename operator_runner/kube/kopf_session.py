"""HTTP sessions for kopf, on the connection that all parts share.

kopf decodes responses by itself: a list with `json()`, a watch with `content.iter_chunked()`.
Both return objects within the bounds of `core.json_bounds` here.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
from aiohttp.client_reqrep import ClientResponse
from yarl import URL

from operator_runner.core import json_bounds
from operator_runner.core.async_tasks import end_tasks
from operator_runner.kube.api import is_watch
from operator_runner.kube.session import Connection, split_lines

_LEVELS_AROUND_ITEM, _LEVELS_AROUND_EVENT = 2, 1
"""Levels of nesting around an object in a list and in a watch event."""
_OK = 200

OnJson = Callable[[str, Mapping[str, str], int, Any], None]
"""Called for each response that kopf decodes as JSON, which are all but those of watches.

The arguments are API path and query of the request, HTTP status and decoded content.
"""


class KopfSession:
    """The sessions of one kopf operator, and the tasks that send requests on them."""

    def __init__(self, connection: Connection, on_json: OnJson = lambda *_: None) -> None:
        """Open nothing yet. `on_json` observes the responses, watches aside."""
        self._connection = connection
        self._on_json = on_json
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._connection.server

    def open(self) -> aiohttp.ClientSession:
        """Return a session that kopf may close: after a 401 it closes it and opens another.

        The connections stay open until the Connection is closed. Watches are reported to the
        listeners of `Connection.on_watch`.
        """
        return self._connection.session(
            _bounded_response(self._on_response, self._watch_started), self._record_task
        )

    async def end_tasks(self) -> None:
        """Cancel every task that has sent a request on these sessions; return when all ended."""
        await end_tasks(self._tasks)

    async def _record_task(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
        return await handler(request)

    def _on_response(self, url: URL, status: int, content: Any) -> None:
        self._on_json(self._connection.path_of(url), url.query, status, content)

    def _watch_started(self, url: URL) -> Callable[[], None] | None:
        """Report an accepted watch; return the callback for its end, None for other requests."""
        if not is_watch(url.query):
            return None
        return self._connection.watch_started(self._connection.path_of(url))


def _bounded_response(
    on_json: Callable[[URL, int, Any], None],
    watch_started: Callable[[URL], Callable[[], None] | None],
) -> type[ClientResponse]:
    class BoundedResponse(ClientResponse):
        """A response whose objects are within the bounds."""

        async def start(self, connection: Any) -> ClientResponse:
            await super().start(connection)
            ended = watch_started(self.url) if self.status == _OK else None
            lines: Any = _BoundedLines(self.content, ended)
            self.content = lines
            return self

        async def json(self, **_: Any) -> Any:
            raw = await self.read()
            content = json_bounds.decode(raw, _LEVELS_AROUND_ITEM) if raw.strip() else None
            on_json(self.url, self.status, content)
            return content

    return BoundedResponse


class _BoundedLines:
    """The content of a response; chunks are whole lines of JSON within the bounds."""

    def __init__(self, content: aiohttp.StreamReader, ended: Callable[[], None] | None) -> None:
        self._content = content
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines; `size` is the number of bytes to read at a time."""
        try:
            async for line in split_lines(self._content.iter_chunked(size)):
                yield json_bounds.shorten(line, _LEVELS_AROUND_EVENT) + b"\n"
        finally:
            if self._ended is not None:
                self._ended()
