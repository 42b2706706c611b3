"""Requests to the API server, and lists in pages; errors are raised as those of core/errors.py."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from operator_runner.core import json_bounds
from operator_runner.core.errors import (
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
)
from operator_runner.core.fencing import UNFENCED, Fence, WritePermit
from operator_runner.core.model import Json
from operator_runner.kube.session import Connection, fenced_by

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Content types of objects and lists of which only the metadata is read."""
FIELD_MANAGER = "operator-runner"

_ERRORS: dict[int, type[ApiError]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: Unavailable,
}
_TOO_LARGE = re.compile(r"request is too large|trying to send message larger than max")
"""Of etcd, which stores objects of 1.5 MiB: with 500, as if a retry could succeed."""
_UNAUTHORIZED = 401
_GONE = 410
_TOO_MANY_REQUESTS = 429


class Api:
    """Sends requests over a connection and decodes the responses.

    Only requests that were not carried out are retried: a 429 with Retry-After until the
    timeout, and by aiohttp a GET, PUT or DELETE once if a kept-alive connection was closed. All
    other retries are up to the caller.
    """

    def __init__(self, connection: Connection) -> None:
        """Use `connection`; the caller closes it."""
        self.connection = connection

    async def request(  # one argument for each part of a request
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | list[Json] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        outer_levels: int = 0,
        timeout: float = 30.0,  # noqa: ASYNC109 turned into Unavailable, unlike asyncio.timeout
        fence: Fence = UNFENCED,
    ) -> Json:
        """Send `body` to an API path such as `/api/v1/namespaces` and return the JSON response.

        `timeout` is in seconds, retries included. `outer_levels` is 2 for lists of objects, see
        `json_bounds.decode`. `fence` is that of a write. Raises ApiError; Fenced if it was not
        sent.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept} | ({} if data is None else {"Content-Type": content_type})
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    permit = fence.permit()
                    async with self.connection.http.request(
                        method,
                        self.connection.url(path),
                        params=_limited(params, permit),
                        data=data,
                        headers=headers,
                        trace_request_ctx=permit,
                    ) as response:
                        wait = _retry_after_seconds(response)
                        if wait is None:
                            return await _decode(response, what, outer_levels)
                    await asyncio.sleep(wait)
        except TimeoutError as error:
            raise Unavailable(f"{what}: no response within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise fenced_by(error) or self._unreachable(what, error) from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], accept: str, idle: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a GET with a streamed response; yields its chunks as they are received.

        `idle` is the read timeout in seconds. Raises ApiError, also while reading.
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
                ended = self.connection.watch_started(metadata_watch_key(path))
                try:
                    yield response.content.iter_any()
                finally:
                    ended()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreachable(what, error) from error

    def _unreachable(self, what: str, error: Exception) -> Unavailable:
        return Unavailable(f"{what}: {self.connection.server}: {_reason(error)}")


def _reason(error: Exception) -> str:
    """Return why there is no response, with the solution if no connection was made."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", error.certificate_error)
            return f"untrusted certificate: {why}; check certificate-authority in the kubeconfig"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno or 0
            # Below zero are the errors of the resolver.
            why = os.strerror(number) if number > 0 else error.os_error.strerror or error.os_error
            via = "proxy " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
            return (
                f"cannot connect to {via}{error.host}:{error.port} ({why}); "
                "check that the API server is running, and its address in the kubeconfig"
            )
    return str(error) or type(error).__name__


def is_watch(query: Mapping[str, str]) -> bool:
    """Return whether the query of a GET requests a watch.

    As in the API server, every value of `watch` but `0` and `false` does, even an empty one.
    """
    return query.get("watch", "false").lower() not in {"false", "0"}


def metadata_watch_key(path: str) -> str:
    """Return the key of a metadata watch, distinct from that of a watch of whole objects."""
    return f"{path} (metadata)"


def _limited(
    params: Mapping[str, str] | None, permit: WritePermit | None
) -> Mapping[str, str] | None:
    """Return the parameters with the time limit of the permit, if there is one."""
    return params if permit is None else {**(params or {}), "timeout": permit.timeout}


def _retry_after_seconds(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds to wait if the API server is overloaded, None for any other response."""
    after = response.headers.get("Retry-After", "")
    if response.status != _TOO_MANY_REQUESTS or not after.isdecimal():
        return None
    return max(0.1, float(after))


async def _decode(response: aiohttp.ClientResponse, what: str, outer_levels: int = 0) -> Json:
    raw = await response.read()
    try:
        answer: Any = json_bounds.decode(raw, outer_levels)
    except ValueError:
        answer = None
    if response.status < 400 and isinstance(answer, dict):  # noqa: PLR2004
        return answer
    raise error_from_status(
        response.status, answer, f"{what}: {raw[:300].decode(errors='replace')}"
    )


def error_from_status(status: int, answer: Any, otherwise: str) -> ApiError:
    """Return the error for an HTTP status and the Status object in the body, if there is one."""
    details = answer if isinstance(answer, dict) else {}
    message = details.get("message")
    if status == _UNAUTHORIZED:
        return Forbidden(
            f"{message or otherwise}: the API server refused the credentials; renew the token or "
            "certificate in the kubeconfig, or that of the service account",
            status,
        )
    if status == _GONE:
        return Expired(str(message or f"{otherwise} (HTTP 410)"), status)
    if status >= 500 and _TOO_LARGE.search(str(message)):  # noqa: PLR2004
        return Invalid(
            f"{message}: the object is larger than etcd can store; keep large content in ConfigMaps"
            " or volumes",
            status,
        )
    default = Unavailable if status >= 500 else ApiError  # noqa: PLR2004
    kind = _ERRORS.get(status, default)
    return kind(str(message or f"{otherwise} (HTTP {status})"), status)


async def list_pages(
    api: Api,
    path: str,
    *,
    limit: int = 500,
    params: Mapping[str, str] | None = None,
    accept: str = JSON,
    outer_levels: int = 0,
) -> AsyncIterator[Json]:
    """Yield each page of the list at `path`, with at most `limit` items. Raises ApiError.

    `params` is added to the query; `outer_levels` is as in `Api.request`. Expired means that the
    continue token is too old: the list has to start over.
    """
    query = {**(params or {}), "limit": str(limit)}
    while True:
        page = await api.request(
            "GET", path, params=query, accept=accept, outer_levels=outer_levels
        )
        yield page
        token = continue_token(page)
        if not token:
            return
        query["continue"] = token


def continue_token(page: Json) -> str:
    """Return the continue token of the next page; empty on the last page."""
    return (page.get("metadata") or {}).get("continue") or ""
