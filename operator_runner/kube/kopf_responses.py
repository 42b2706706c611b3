"""Responses of the API server to kopf, which decodes what it reads by itself: kept within bounds.

kopf reads a list with `json()`, and the lines of a watch from `content.iter_chunked()`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from aiohttp.client_reqrep import ClientResponse
from yarl import URL

from operator_runner.core import bounds
from operator_runner.kube.line_splitting import split_lines

_IN_LIST, _IN_EVENT = 2, 1
"""Levels of nesting around an object."""


Begun = Callable[[URL], Callable[[], None] | None]
"""Takes the URL of an accepted request; gives what to call when a watch has ended."""


def bounded(begun: Begun) -> type[ClientResponse]:
    """Return a class of responses which report the watches among them to `begun`."""

    class Bounded(ClientResponse):
        """A response whose objects are within the bounds, however it is read."""

        async def start(self, connection: Any) -> ClientResponse:
            await super().start(connection)
            accepted = self.status == 200  # noqa: PLR2004
            lines: Any = _Lines(self.content, begun(self.url) if accepted else None)
            self.content = lines
            return self

        async def json(self, **_: Any) -> Any:
            raw = await self.read()
            return bounds.decode(raw, _IN_LIST) if raw.strip() else None

    return Bounded


class _Lines:
    """The content of a response, whose lines are JSON when it is read in chunks."""

    def __init__(self, content: aiohttp.StreamReader, ended: Callable[[], None] | None) -> None:
        self._content = content
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines; `size` is that of the parts in which they are read."""
        try:
            async for line in split_lines(self._content.iter_chunked(size)):
                yield bounds.shorten(line, _IN_EVENT) + b"\n"
        finally:
            if self._ended is not None:
                self._ended()
