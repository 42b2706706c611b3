"""Send the requests of a dry run to the API server, and decode what it returns within bounds.

Which requests may be sent, and how they ask for a dry run, is decided here, without I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import aiohttp
from aiohttp import hdrs, web

from operator_runner.core import json_bounds
from operator_runner.core.async_tasks import WorkerThread
from operator_runner.core.model import Json
from operator_runner.kube.api import JSON
from operator_runner.kube.session import Connection
from operator_runner.proxy.bodies import (
    decode,
    decode_json,
    decode_yaml,
    encode_json,
    response_headers,
)
from operator_runner.proxy.request_info import READS, RequestInfo
from operator_runner.proxy.response_tracker import LEVELS_AROUND_ITEM, deep_items, warn_of_pruned
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError

_PREVIEWED = frozenset({"", "status", "scale", "ephemeralcontainers", "resize", "approval"})
"""Subresources whose writes the API server can try without storing them."""
_READ = frozenset({"", "status", "scale", "log", "approval", "ephemeralcontainers", "resize"})
"""Subresources that can be read without an effect; `proxy` passes any request on."""
_NOT_PREVIEWED = frozenset(
    {
        ("", "bindings"),
        ("image.openshift.io", "imagestreamimports"),
        ("image.openshift.io", "imagestreammappings"),
        ("project.openshift.io", "projectrequests"),
    }
)
"""Groups and resources whose creation changes other objects, some whatever the query has."""
_DRY_RUN = ("dryRun", "All")
_IDENTITY = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
"""Metadata that the API server sets when it creates an object."""


def refusal(method: str, info: RequestInfo | None, *, upgraded: bool) -> str:
    """Return what the request does that cannot be previewed; empty if it can be sent."""
    reads = method in READS and not upgraded
    if info is None:
        return "" if reads else "a write outside of the resource API"
    if not reads and (info.group, info.resource) in _NOT_PREVIEWED:
        return f"a write to {info.resource}"
    allowed = _READ if reads else _PREVIEWED
    return "" if info.subresource in allowed else info.subresource


def with_dry_run(query: str) -> str:
    """Return the query of a write with `dryRun=All` as its only value of dryRun."""
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True)]
    return urlencode([*(each for each in kept if each[0] != _DRY_RUN[0]), _DRY_RUN])


def delete_options(kind: str, body: bytes) -> bytes:
    """Return the body of a deletion that asks for a dry run.

    The API server ignores the query of a deletion that has a body.
    """
    try:
        given = decode(kind, body)
    except ValueError:
        given = None
    options = given if isinstance(given, dict) else {}
    return encode_json(
        {**options, "kind": "DeleteOptions", "apiVersion": "v1", "dryRun": [_DRY_RUN[1]]}
    )


def as_new(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object as it is sent to create it under this name."""
    metadata = {
        key: value for key, value in (body.get("metadata") or {}).items() if key not in _IDENTITY
    }
    return {**body, "metadata": {**metadata, "name": name}}


def with_identity(body: dict[str, Any], former: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the name, the uid and the age of a former state of it."""
    kept = {
        key: value
        for key, value in (former.get("metadata") or {}).items()
        if key in {"name", "uid", "creationTimestamp", "resourceVersion"}
    }
    return {**body, "metadata": {**(body.get("metadata") or {}), **kept}}


OK, CREATED = 200, 201
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response: an object of the API, with its status code and headers."""

    code: int
    body: Json
    headers: Any = None
    size: int = 0
    """Approximate bytes of the body as JSON, 0 if it is small."""

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return self.code in _SUCCESS

    def response(self) -> web.Response:
        """Return it as it is sent to the client."""
        headers = {} if self.headers is None else dict(response_headers(self.headers))
        for name in (hdrs.CONTENT_LENGTH, hdrs.CONTENT_ENCODING, hdrs.CONTENT_TYPE):
            headers.pop(name, None)
        return web.Response(
            status=self.code, body=encode_json(self.body), content_type=JSON, headers=headers
        )


def object_of(kind: str, body: bytes) -> Json:
    """Return the object of a body. Raises StatusError for an invalid one."""
    try:
        content = decode_yaml(body) if "yaml" in kind else decode_json(body)
    except ValueError as error:
        raise StatusError(400, f"invalid body: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata") or {}, dict):
        raise StatusError(400, "invalid body: expected an object with metadata")
    return content


def with_version(body: Json) -> Json:
    """Return an object with a resourceVersion: clients send back the one that they have read."""
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {"resourceVersion": "1", **metadata}}


def scale_of(body: Json) -> Json:
    """Return the Scale of an object."""
    replicas = (body.get("spec") or {}).get("replicas", 1)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": body.get("metadata") or {},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas},
    }


def scaled(body: Json, scale: Json) -> Json:
    """Return an object with the replicas of a Scale. Raises ValueError for an invalid one."""
    spec = scale.get("spec") or {}
    if not isinstance(spec, dict):
        raise ValueError("invalid Scale: spec has to be an object")  # noqa: TRY004 (of the client)
    replicas = spec.get("replicas", 0)
    return {**body, "spec": {**(body.get("spec") or {}), "replicas": replicas}}


MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""A list of some thousand objects, which Python decodes in 0.4 s."""
_REDIRECTS = range(300, 400)


class Sender:
    """Sends requests for dry runs; large bodies are decoded and encoded in a thread."""

    def __init__(self, connection: Connection, worker_thread: WorkerThread) -> None:
        """Use the credentials of `connection`."""
        self._connection = connection
        self.thread = worker_thread

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
                parse = json_bounds.decode_pruned if outer_levels else json_bounds.decode
                decoded = await grant.decoded(
                    self.thread, JSON, len(raw), lambda: parse(raw, outer_levels)
                )
        except (aiohttp.ClientError, OSError) as error:
            reason = f"no response from the API server {self._connection.server}: {error}"
            raise StatusError(502, reason) from error
        except ValueError as error:
            raise StatusError(502, f"the API server's response is not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise StatusError(502, "the API server's response is not an object")
        return ApiResponse(response.status, decoded, response.headers, len(raw))

    async def list(self, grant: Grant, path: str) -> ApiResponse:
        """Read a list of objects, as other runs get it: see proxy/response_tracker.py."""
        found = await self.send(grant, "GET", path, outer_levels=LEVELS_AROUND_ITEM)
        if found.is_success and (names := await self._deep_items(grant, found)):
            warn_of_pruned(grant, path.partition("?")[0], names)
        return found

    async def respond(self, grant: Grant, answer: ApiResponse) -> web.Response:
        """Return an answer as it is sent to the client."""
        return await grant.decoded(self.thread, JSON, answer.size, answer.response)

    async def _deep_items(self, grant: Grant, found: ApiResponse) -> Sequence[str]:
        return await grant.decoded(self.thread, JSON, found.size, lambda: deep_items(found.body))


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_RESPONSE_BYTES:
            reason = f"the API server's response is larger than {MAX_RESPONSE_BYTES} bytes"
            raise StatusError(502, f"{reason}: select fewer objects, or read them in pages")
    return bytes(raw)
