"""Requests to the API server, with its errors told in the words of errors.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from operator_runner.core import bounds
from operator_runner.core.errors import (
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
)
from operator_runner.core.model import Json
from operator_runner.kube.session import Connection

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = "operator-runner"

_ERRORS: dict[int, type[ApiError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: Unavailable,
}
_GONE = 410
_TOO_MANY_REQUESTS = 429


class Api:
    """Sends requests over a connection and decodes what comes back.

    Two kinds of retry happen below, both of requests that were not carried out: a 429 with
    Retry-After is repeated while the timeout lasts, and aiohttp repeats a GET, PUT or DELETE
    once if a kept-alive connection turns out to be closed. Everything else is the caller's.
    """

    def __init__(self, connection: Connection) -> None:
        """Use `connection`, which stays the caller's to close."""
        self.connection = connection

    async def request(  # one argument for each part of a request
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        around: int = 0,
        timeout: float = 30.0,  # noqa: ASYNC109 turned into Unavailable, unlike asyncio.timeout
    ) -> Json:
        """Send `body` to an API path such as `/api/v1/namespaces` and return the JSON answer.

        `timeout` is in seconds and covers the whole exchange. `around` is 2 where objects come
        in a list, see `bounds.decode`. Raises ApiError.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept} | ({} if data is None else {"Content-Type": content_type})
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    async with self.connection.http.request(
                        method,
                        self.connection.url(path),
                        params=params,
                        data=data,
                        headers=headers,
                    ) as response:
                        wait = _retry_after(response)
                        if wait is None:
                            return await _decode(response, what, around)
                    await asyncio.sleep(wait)
        except TimeoutError as error:
            raise Unavailable(f"{what}: no answer within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(what, error) from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], accept: str, idle: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a GET whose answer has no end; gives its chunks as they come.

        `idle` is the longest silence in seconds. Raises ApiError, while reading too.
        """
        what = f"GET {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle)
        try:
            async with self.connection.http.get(
                self.connection.url(path),
                params=params,
                headers={"Accept": accept},
                timeout=timeout,
            ) as response:
                if response.status >= 400:  # noqa: PLR2004
                    await _decode(response, what)
                ended = self.connection.watch_begun(metadata_watch(path))
                try:
                    yield response.content.iter_any()
                finally:
                    ended()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreachable(what, error) from error

    def _unreachable(self, what: str, error: Exception) -> Unavailable:
        reason = str(error) or type(error).__name__
        return Unavailable(f"{what}: {self.connection.server}: {reason}")


def metadata_watch(path: str) -> str:
    """Return what a watch of metadata is reported as: objects may be watched whole beside it."""
    return f"{path} (metadata)"


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds that an overloaded API server asks to wait, None for any other answer."""
    after = response.headers.get("Retry-After", "")
    if response.status != _TOO_MANY_REQUESTS or not after.isdecimal():
        return None
    return max(0.1, float(after))


async def _decode(response: aiohttp.ClientResponse, what: str, around: int = 0) -> Json:
    raw = await response.read()
    try:
        answer: Any = bounds.decode(raw, around)
    except ValueError:
        answer = None
    if response.status < 400 and isinstance(answer, dict):  # noqa: PLR2004
        return answer
    raise error_of(response.status, answer, f"{what}: {raw[:300].decode(errors='replace')}")


def error_of(status: int, answer: Any, otherwise: str) -> ApiError:
    """Return the error for an HTTP status and the Status object that came with it, if one did."""
    told = answer if isinstance(answer, dict) else {}
    message = told.get("message")
    if status == _GONE:
        following = (told.get("metadata") or {}).get("continue") or ""
        return Expired(str(message or f"{otherwise} (HTTP 410)"), status, following)
    default = Unavailable if status >= 500 else ApiError  # noqa: PLR2004
    kind = _ERRORS.get(status, default)
    return kind(str(message or f"{otherwise} (HTTP {status})"), status)
