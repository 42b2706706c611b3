"""Send the requests of a dry run to the API server, and decode what it returns within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import aiohttp
from aiohttp import hdrs, web

from operator_runner.core import json_bounds
from operator_runner.kube.api import JSON
from operator_runner.kube.session import Connection
from operator_runner.kube.worker_thread import WorkerThread
from operator_runner.proxy.bodies import is_quick
from operator_runner.proxy.dry_run.responses import ApiResponse
from operator_runner.proxy.list_pruning import LEVELS_AROUND_ITEM, deep_items, warn_of_pruned
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""A list of some thousand objects, which Python decodes in 0.4 s."""
_REDIRECTS = range(300, 400)

_T = TypeVar("_T")


class Sender:
    """Sends requests for dry runs; large bodies are decoded and encoded in a thread."""

    def __init__(self, connection: Connection, worker_thread: WorkerThread) -> None:
        """Use the credentials of `connection`."""
        self._connection = connection
        self._worker_thread = worker_thread

    async def send(
        self,
        grant: Grant,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "",
        agent: str = "",
        outer_levels: int = 0,
    ) -> ApiResponse:
        """Send a request with a JSON response. Raises StatusError without one, and beyond bounds.

        Values of lists that are nested too deep are empty; see `json_bounds.decode_pruned` for
        `outer_levels`. The credentials are sent to no other server: a redirect is an error.
        """
        headers = {hdrs.ACCEPT: JSON}
        if content_type:
            headers[hdrs.CONTENT_TYPE] = content_type
        if agent:
            headers[hdrs.USER_AGENT] = agent
        try:
            async with self._connection.http.request(
                method,
                self._connection.url(path),
                data=body or None,
                headers=headers,
                # Without a type the API server expects JSON; aiohttp would add another one.
                skip_auto_headers=(hdrs.CONTENT_TYPE,),
                allow_redirects=False,
            ) as response:
                if response.status in _REDIRECTS:
                    raise StatusError(502, f"the API server redirects {method} {path}")
                raw = await _bounded(response)
                decode = json_bounds.decode_pruned if outer_levels else json_bounds.decode
                decoded = await self.call(grant, JSON, len(raw), lambda: decode(raw, outer_levels))
        except (aiohttp.ClientError, OSError) as error:
            reason = f"no response from the API server {self._connection.server}: {error}"
            raise StatusError(502, reason) from error
        except ValueError as error:
            raise StatusError(502, f"the API server's response is not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise StatusError(502, "the API server's response is not an object")
        return ApiResponse(response.status, decoded, response.headers, len(raw))

    async def list(self, grant: Grant, path: str) -> ApiResponse:
        """Read a list of objects, as other runs get it: see proxy/list_pruning.py."""
        found = await self.send(grant, "GET", path, outer_levels=LEVELS_AROUND_ITEM)
        if found.is_success and (names := await self._deep_items(grant, found)):
            warn_of_pruned(grant, path.partition("?")[0], names)
        return found

    async def respond(self, grant: Grant, answer: ApiResponse) -> web.Response:
        """Return an answer as it is sent to the client."""
        return await self.call(grant, JSON, answer.size, answer.response)

    async def _deep_items(self, grant: Grant, found: ApiResponse) -> Sequence[str]:
        return await self.call(grant, JSON, found.size, lambda: deep_items(found.body))

    async def call(self, grant: Grant, kind: str, size: int, function: Callable[[], _T]) -> _T:
        """Decode or encode a body of this media type and size, in the thread if it is large."""
        if is_quick(kind, size):
            return function()
        async with grant.decoding:
            return await self._worker_thread.call(function)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_RESPONSE_BYTES:
            reason = f"the API server's response is larger than {MAX_RESPONSE_BYTES} bytes"
            raise StatusError(502, f"{reason}: select fewer objects, or read them in pages")
    return bytes(raw)
