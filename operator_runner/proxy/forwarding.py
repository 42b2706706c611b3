"""Forward requests of runs to the API server and stream the responses back.

Fencing (docs/adr/0034-fencing.md): which requests need a permit, and how long the API server may
take.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import aiohttp
import structlog
from aiohttp import hdrs, web
from multidict import CIMultiDict

from operator_runner.core.async_tasks import WorkerThread
from operator_runner.core.durations import parse_duration
from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import UNFENCED, Fence, WritePermit
from operator_runner.core.json_bounds import Pruner
from operator_runner.core.model import RunApiRequest
from operator_runner.kube.api import JSON, Api, is_watch
from operator_runner.kube.credentials import is_impersonation
from operator_runner.kube.session import Connection, fenced_by
from operator_runner.proxy import bodies, tunnel
from operator_runner.proxy.bodies import (
    DecodingError,
    request_headers,
    response_headers,
    upgrade_of,
)
from operator_runner.proxy.dry_run.forwarding import DryRunForwarder
from operator_runner.proxy.ownership_enforcement import (
    Admission,
    Decision,
    WriteRequest,
    is_target_in_body,
    is_write,
    with_target,
)
from operator_runner.proxy.permission_log import PermissionRecorder
from operator_runner.proxy.request_info import READS, RequestInfo, ambiguity
from operator_runner.proxy.response_tracker import (
    MAX_BODY_BYTES,
    WRITES,
    ResponseTracker,
    TrackedRequest,
    deep_objects,
    pruned_chunks,
    pruner_of,
    warn_of_pruned,
)
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError, not_found

_log = structlog.get_logger(__name__)

_MAX_LINE_BYTES = 64 * 1024
"""Long enough for Warning headers."""
_AUTO_HEADERS = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE)
"""Headers that aiohttp would add if the client sent none."""
_WRITE_BYTES = 1024 * 1024
"""The largest body that is sent with a single write."""
_BODY_TIMEOUT_SECONDS = 60
"""For a buffered body, and between two chunks of a streamed one. The API server's timeout for a
whole request."""
_SWITCHING = 101
_OK = range(200, 300)
_CREATED = 201
_PRECONDITION_FAILED = (409, 422)
"""Responses to a write whose precondition failed; 422 for an apply or a patch."""
_MAX_ATTEMPTS = 3
"""Attempts of a write whose object changes between the GET and the write."""
_SHOWN = 200
"""Characters of an invalid path in the error."""


_T = TypeVar("_T")

RequestCallback = Callable[[str, RunApiRequest], None]
"""Takes the id of a run, and a request of it."""


class Forwarder:
    """Forwards requests with the operator's credentials; streams have no timeout."""

    def __init__(
        self,
        connection: Connection,
        tracker: ResponseTracker,
        worker_thread: WorkerThread,
        admission: Admission,
        *,
        recorder: PermissionRecorder | None = None,
        on_request: RequestCallback | None = None,
        on_unserved: Callable[[], None] = lambda: None,
    ) -> None:
        """`admission` decides on writes; `recorder` records the permissions that requests need.

        `on_request` is called for each request of a run after its response has begun, or if it is
        not forwarded, and `on_unserved` if it is about a resource that is not served: the client's
        discovery is old.
        """
        self._on_request = on_request
        self._on_unserved = on_unserved
        self._connection = connection
        self._tracker = tracker
        self._worker_thread = worker_thread
        self._admission = admission
        self._recorder = recorder
        self._dry_run = DryRunForwarder(Api(connection), admission, worker_thread)

    async def forward(self, request: web.BaseRequest, grant: Grant | None) -> web.StreamResponse:
        """Return the response, already sent. Raises StatusError if nothing has been sent yet.

        Requests without a grant have no owner: the proxy adds no owner to their objects.
        """
        began = time.time()
        try:
            return await self._forward(request, grant)
        except StatusError as error:
            self._report_request(request, grant, error.code, began, str(error))
            raise

    async def _forward(self, request: web.BaseRequest, grant: Grant | None) -> web.StreamResponse:
        _check_target(request.raw_path)
        self._check_impersonation(request)
        await _send_continue(request)
        info = RequestInfo.parse(request.raw_path.partition("?")[0])
        fence = _fence(request, grant, info)
        permit(fence)  # before anything is read or sent for the request
        _note_wanted(request, grant, info)
        if (answer := await self._answer(request, grant, info)) is not None:
            await answer.prepare(request)
            await answer.write_eof()
            return answer
        _log_read(request, info)
        content = await _content(request)
        tracked = _tracked_request(request, grant, info, content)
        headers = _headers(request, readable=tracked is not None)
        write = _write(request, grant, info, content)
        if write is not None and is_target_in_body(write):
            content = await _buffered(request, content)
            write = await self._decoded(write, content, partial(with_target, write))
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            decision = Decision() if write is None else await self._admission.decide(write)
            body = content
            if write is not None and decision.edit is not None:
                content = await _buffered(request, content)
                body = await self._decoded(write, content, decision.edit)
            if isinstance(body, bytes):
                headers[hdrs.CONTENT_LENGTH] = str(len(body))
            permitted = permit(fence)
            path = limited_path(_path(request, decision), info, permitted)
            began = time.time()
            sent = self._send(request, path, headers, body, permitted=permitted)
            async with await sent as upstream:
                self._report_request(request, grant, upstream.status, began)
                self._report_unserved(info, upstream)
                failed = upstream.status in _PRECONDITION_FAILED and attempt < _MAX_ATTEMPTS
                if failed and write and await self._admission.is_outdated(write, decision):
                    continue
                if self._recorder is not None:
                    await self._recorder.record(
                        request, grant, body, upstream.status, write.requests if write else ()
                    )
                if upstream.status == _SWITCHING:
                    return await tunnel.join(request, upstream, fence)
                return await self._respond(request, upstream, tracked)
        raise AssertionError("the last attempt returns")

    async def _answer(
        self, request: web.BaseRequest, grant: Grant | None, info: RequestInfo | None
    ) -> web.Response | None:
        """Return the answer to a request that the API server does not get, if it is one."""
        if grant is None:
            return None
        if grant.dry_run is not None:
            return await self._dry_run.answer(
                request, grant, info, partial(_whole, request), upgraded=_is_session(request, info)
            )
        if not _accepts_older(request) or (read := _tracked_request(request, grant, info)) is None:
            return None
        body = await self._tracker.newest(read)
        if body is None:
            return None
        if self._recorder is not None:
            await self._recorder.record(request, grant, None, HTTPStatus.OK)
        if body:
            return web.Response(body=body, content_type=JSON)
        return not_found(read.info).response()

    def _check_impersonation(self, request: web.BaseRequest) -> None:
        """Raise StatusError if run and operator impersonate: a request has one such user."""
        impersonated = self._connection.impersonated
        if impersonated and any(map(is_impersonation, request.headers)):
            raise StatusError(
                403,
                "the run impersonates a user, and the operator's kubeconfig impersonates"
                f" {impersonated[0]} (`as`): remove one of them, such as `impersonate_user` of the"
                " task",
            )

    def _report_request(
        self,
        request: web.BaseRequest,
        grant: Grant | None,
        status: int,
        began: float,
        refusal: str = "",
    ) -> None:
        """Report a request of a run; `began` is in seconds since the epoch."""
        if self._on_request is not None and grant is not None and grant.run_id:
            seconds = time.time() - began
            answered = RunApiRequest(request.method, request.path, status, began, seconds, refusal)
            self._on_request(grant.run_id, answered)

    def _report_unserved(self, info: RequestInfo | None, upstream: aiohttp.ClientResponse) -> None:
        """Report a resource that is not served; of a missing object there is a Status in JSON."""
        is_text = upstream.content_type == "text/plain"
        if info is not None and upstream.status == HTTPStatus.NOT_FOUND and is_text:
            self._on_unserved()

    async def _decoded(
        self, write: WriteRequest, body: bytes, function: Callable[[bytes], _T]
    ) -> _T:
        """Return what `function` makes of the body. Raises StatusError beyond the bounds."""
        try:
            return await write.grant.decoded(
                self._worker_thread, write.media_type, len(body), lambda: function(body)
            )
        except DecodingError as error:
            raise StatusError(400, str(error)) from error

    async def _send(
        self,
        request: web.BaseRequest,
        path: str,
        headers: CIMultiDict[str],
        body: bytes | _Stream | None,
        *,
        permitted: WritePermit | None,
    ) -> aiohttp.ClientResponse:
        server = self._connection.server
        try:
            return await self._connection.http.request(
                request.method,
                self._connection.url(path),
                headers=headers,
                skip_auto_headers=_AUTO_HEADERS,
                data=_payload(body),
                allow_redirects=False,
                auto_decompress=False,
                max_line_size=_MAX_LINE_BYTES,
                max_field_size=_MAX_LINE_BYTES,
                trace_request_ctx=permitted,
            )
        except Fenced as refusal:
            raise refused(refusal) from refusal
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = f"cannot reach the API server {server}: {error}"
            raise StatusError(503, reason, retry_after=1) from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(body, _Stream) and body.fault is not None:
                raise body.fault from error
            if (cause := fenced_by(error)) is not None:
                raise refused(cause) from error
            reason = str(error) or type(error).__name__
            raise StatusError(502, f"no response from the API server {server}: {reason}") from error

    async def _respond(
        self,
        request: web.BaseRequest,
        upstream: aiohttp.ClientResponse,
        tracked: TrackedRequest | None,
    ) -> web.StreamResponse:
        headers = response_headers(upstream.headers)
        chunks: AsyncIterator[bytes] = aiter(upstream.content.iter_any())
        if tracked is not None and upstream.status in _OK:
            pruner = pruner_of(tracked, upstream.headers)
            if pruner is not None:
                headers.popall(hdrs.CONTENT_LENGTH, None)  # it may become shorter
                chunks = pruned_chunks(pruner, chunks)
            chunks = self._tracked_chunks(request, upstream, tracked, chunks, pruner=pruner)
        elif tracked is not None and upstream.status == HTTPStatus.NOT_FOUND:
            tracked.note_read({})
        response = web.StreamResponse(
            status=upstream.status, reason=upstream.reason, headers=headers
        )
        await response.prepare(request)
        try:
            async for chunk in chunks:
                await response.write(chunk)
        except aiohttp.ClientPayloadError as error:
            # Too late for a Status: only a closed connection shows the client that data is missing.
            _log.warning("API server closed a response early", path=request.path, error=str(error))
            if request.transport is not None:
                request.transport.close()
        else:
            await response.write_eof()
        return response

    async def _tracked_chunks(
        self,
        request: web.BaseRequest,
        upstream: aiohttp.ClientResponse,
        tracked: TrackedRequest,
        chunks: AsyncIterator[bytes],
        *,
        pruner: Pruner | None,
    ) -> AsyncIterator[bytes]:
        """Yield the chunks; hold the last one back until the response has been tracked."""
        seen, held = bytearray(), b""
        async for chunk in chunks:
            if held:
                yield held
            held = chunk
            if len(seen) <= MAX_BODY_BYTES:
                seen += chunk
        is_whole = len(seen) <= MAX_BODY_BYTES
        if pruner is not None and pruner.has_pruned:
            body = bytes(seen) if is_whole else b""
            names = await self._worker_thread.call(deep_objects, body)
            warn_of_pruned(tracked.grant, request.path, names)
        if is_whole:
            kind = upstream.headers.get(hdrs.CONTENT_TYPE, "")
            created = upstream.status == _CREATED
            await self._tracker.track(tracked, kind, bytes(seen), created=created)
        if held:
            yield held


def _check_target(target: str) -> None:
    """Raise StatusError unless the API server reads a path with query as the proxy does."""
    # Anything else (a full URL, an authority) could send the credentials elsewhere.
    if not target.startswith("/"):
        raise StatusError(400, f"invalid path {target!r}: expected one that starts with /")
    if found := ambiguity(target):
        raise StatusError(400, f"invalid path {target[:_SHOWN]!r}: it has {found}")


def _note_wanted(request: web.BaseRequest, grant: Grant | None, info: RequestInfo | None) -> None:
    """Note an object that the run reads by name or writes: `prune` keeps it."""
    if grant is not None and grant.members is not None and info is not None:
        selector = request.query.get("fieldSelector", "")
        grant.members.on_request(request.method, info.target, selector)


def _fence(request: web.BaseRequest, grant: Grant | None, info: RequestInfo | None) -> Fence:
    """Return the fence of a request; reads are not fenced."""
    acts = may_act(request.method, info, upgraded=_is_session(request, info))
    return grant.fence if grant is not None and acts else UNFENCED


def _is_session(request: web.BaseRequest, info: RequestInfo | None) -> bool:
    return is_session(upgrade_of(request.headers), info, watch=is_watch(request.query))


def _headers(request: web.BaseRequest, *, readable: bool) -> CIMultiDict[str]:
    """Return the headers to send; `readable` requests a response that can be decoded."""
    headers = request_headers(request.headers, readable=readable)
    if upgrade := upgrade_of(request.headers):
        headers[hdrs.CONNECTION], headers[hdrs.UPGRADE] = "Upgrade", upgrade
    return headers


def _path(request: web.BaseRequest, decision: Decision) -> str:
    """Return path and query, with that of the decision."""
    path = request.raw_path
    return f"{path}{'&' if '?' in path else '?'}{decision.query}" if decision.query else path


def _accepts_older(request: web.BaseRequest) -> bool:
    """Return whether the run may get an older object: the modules of warm runs, before an apply.

    What a user whom the run impersonates may read, only the API server knows.
    """
    is_accepted = request.headers.get(hdrs.CACHE_CONTROL) == "max-stale"
    return is_accepted and not any(map(is_impersonation, request.headers))


def _log_read(request: web.BaseRequest, info: RequestInfo | None) -> None:
    # There is no cache. Tests of existing projects wait for this line, at level 2.
    if request.method == "GET" and info is not None:
        log_fields = info.log_fields(request.path, watch=is_watch(request.query))
        _log.debug("Skipping cache lookup", resource=log_fields)


def _tracked_request(
    request: web.BaseRequest,
    grant: Grant | None,
    info: RequestInfo | None,
    body: bytes | _Stream | None = None,
) -> TrackedRequest | None:
    """Return the request if its response is tracked: a write, or a GET of objects."""
    if grant is None or info is None or info.watch or request.query.get("dryRun"):
        return None
    if request.method == "GET":
        is_read = not info.subresource and not is_watch(request.query)
        return TrackedRequest(grant, "GET", info) if is_read else None
    kind = bodies.media_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
    if request.method not in WRITES:
        return None
    if request.method == "DELETE" and isinstance(body, bytes) and bodies.is_dry_run(kind, body):
        return None
    return TrackedRequest(grant, request.method, info)


def _write(
    request: web.BaseRequest,
    grant: Grant | None,
    info: RequestInfo | None,
    content: bytes | _Stream | None,
) -> WriteRequest | None:
    """Return the request as a write of a run; None if it is not one."""
    if grant is None or info is None:
        return None
    if not is_write(request.method, info, upgraded=_is_session(request, info)):
        return None
    return WriteRequest.of(request, grant, info, has_body=bool(content))


async def _content(request: web.BaseRequest) -> bytes | _Stream | None:
    """Return the body: buffered if it is small or must be decoded, else as a stream."""
    if not request.body_exists:
        return None
    length = request.content_length
    if request.method == "DELETE" or (length is not None and length <= _WRITE_BYTES):
        # A buffered body can be sent again if the operator's credentials have expired.
        return await _read(request)
    return _Stream(request)


async def _buffered(request: web.BaseRequest, content: bytes | _Stream | None) -> bytes:
    """Return a body that is to be edited. Raises StatusError if it cannot be read or decoded."""
    kind = bodies.media_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
    if bodies.is_unsupported(kind) or hdrs.CONTENT_ENCODING in request.headers:
        reason = f"unsupported body {kind}: send JSON, YAML or protobuf, not compressed"
        raise StatusError(415, reason)
    return content if isinstance(content, bytes) else await _read(request)


async def _read(request: web.BaseRequest) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_SECONDS):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise StatusError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except (TimeoutError, web.RequestPayloadError) as error:
        raise _body_error(error) from error
    return bytes(body)


async def _whole(request: web.BaseRequest) -> bytes:
    """Return the body of a request, empty without one. Raises StatusError as `_buffered`."""
    return await _buffered(request, None if request.body_exists else b"")


class _Stream:
    """A body that is forwarded while it is received; `fault` is set if that fails."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._content = request.content
        self.fault: StatusError | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                async with asyncio.timeout(_BODY_TIMEOUT_SECONDS):
                    chunk = await self._content.readany()
                if not chunk:
                    return
                yield chunk
        except (TimeoutError, web.RequestPayloadError) as error:
            self.fault = _body_error(error)
            raise


def _body_error(error: Exception) -> StatusError:
    if isinstance(error, TimeoutError):
        return StatusError(
            408, f"body not received within {_BODY_TIMEOUT_SECONDS} s; send it faster"
        )
    return StatusError(400, f"the body is incomplete or malformed: {error}")


def _payload(body: bytes | _Stream | None) -> Any:
    # aiohttp sends bytes with one write and warns about large ones; it splits a file.
    if isinstance(body, bytes) and len(body) > _WRITE_BYTES:
        return io.BytesIO(body)
    return body


async def _send_continue(request: web.BaseRequest) -> None:
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


_LONG_RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""Subresources whose requests the API server does not limit."""


def is_session(upgrade: str, info: RequestInfo | None, *, watch: bool) -> bool:
    """Return whether a request is a stream in both directions, such as exec.

    `upgrade` is the protocol that it asks for. `watch` is that of the query, which makes a
    websocket of objects a read. Behind a subresource, an application or a kubelet ignores it.
    """
    is_watch = watch and info is not None and not info.subresource
    return bool(upgrade) and not is_watch


def may_act(method: str, info: RequestInfo | None, *, upgraded: bool) -> bool:
    """Return whether a request may change something; `upgraded` ones are streams, such as exec."""
    return method not in READS or upgraded or (info is not None and is_write(method, info))


def permit(fence: Fence) -> WritePermit | None:
    """Return the permit for a request that is about to be sent. Raises StatusError."""
    try:
        return fence.permit()
    except Fenced as refusal:
        raise refused(refusal) from refusal


def refused(refusal: Fenced) -> StatusError:
    """Return the response to a request that was not permitted."""
    # Not 409, which kubernetes.core takes as the success of a POST.
    return StatusError(403, str(refusal))


def limited_path(path: str, info: RequestInfo | None, permit: WritePermit | None) -> str:
    """Return a path and query (percent-encoded) with the time limit of the permit.

    A shorter limit of the client is kept; the API server rejects an invalid one.
    """
    if permit is None or info is None or info.subresource in _LONG_RUNNING:
        return path
    path, _, query = path.partition("?")
    others, requested = [], ""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) != "timeout":
            others.append(part)
        else:
            requested = requested or unquote_plus(value)
    timeout = requested if _is_kept(requested, permit.limit) else permit.timeout
    return f"{path}?{'&'.join([*filter(None, others), f'timeout={timeout}'])}"


def _is_kept(requested: str, limit: float) -> bool:
    if not requested:
        return False
    try:
        duration = parse_duration(requested)
    except ValueError:
        return True
    # Zero means without a limit.
    return timedelta(0) < duration <= timedelta(seconds=limit)
