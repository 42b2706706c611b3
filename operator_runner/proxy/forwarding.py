"""Carries one request of a run to the API server and its answer back, as streams."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import structlog
from aiohttp import hdrs, web
from multidict import CIMultiDict

from operator_runner.kube.decoding import DecodingError
from operator_runner.kube.offloop import OffLoop
from operator_runner.kube.session import Connection
from operator_runner.proxy import bodies, tunnel
from operator_runner.proxy.admission import Admission, Decision, Write, is_write
from operator_runner.proxy.grants import Grant
from operator_runner.proxy.headers import request_headers, response_headers, upgrade_of
from operator_runner.proxy.recorder import Recorder
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.response_tracker import LARGEST, WRITES, Exchange, Witness
from operator_runner.proxy.status_errors import Refusal

_log = structlog.get_logger(__name__)

_LONGEST_LINE = 64 * 1024
"""Bytes: long Warning headers pass."""
_AUTOMATIC = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE)
"""Headers that aiohttp would make up where the client sent none."""
_ONE_PIECE = 1024 * 1024
"""Bytes that are sent at once."""
_SECONDS_FOR_BODY = 60
"""For a body that is read as a whole, and between two pieces of one that is streamed. The API
server gives a whole request that long."""
_SWITCHING = 101
_OK = range(200, 300)
_TRUE = ("1", "true", "True")
_CREATED = 201
_PRECONDITION_FAILED = (409, 422)
"""Answers to a write whose precondition does not hold; an apply or a patch is invalid then."""
_LOOKS = 3
"""How often an object may come or go between the look at it and a write."""
_SELECTORS = ("labelSelector", "fieldSelector")


class Forwarder:
    """Forwards requests with the operator's credentials; streams have no time limit."""

    def __init__(
        self,
        connection: Connection,
        witness: Witness,
        offloop: OffLoop,
        admission: Admission,
        *,
        recorder: Recorder | None = None,
    ) -> None:
        """`admission` decides on writes; `recorder` is told of requests."""
        self._connection = connection
        self._witness = witness
        self._offloop = offloop
        self._admission = admission
        self._recorder = recorder

    async def forward(self, request: web.BaseRequest, grant: Grant | None) -> web.StreamResponse:
        """Return the answer, already sent. Raises Refusal if nothing has been sent yet.

        Without a grant the request is nobody's: it makes nothing owned.
        """
        # Anything else (a full URL, an authority) could lead the credentials elsewhere.
        if not request.raw_path.startswith("/"):
            raise Refusal(400, f"{request.raw_path!r} is no path on the API server")
        await _invite_body(request)
        info = RequestInfo.parse(request.raw_path.partition("?")[0])
        _tell_read(request, info)
        content = await _content(request)
        exchange = _exchange(request, grant, info, content)
        headers = request_headers(request.headers, readable=exchange is not None)
        if upgrade := upgrade_of(request.headers):
            headers[hdrs.CONNECTION], headers[hdrs.UPGRADE] = "Upgrade", upgrade
        write = _write(request, grant, info, content)
        for look in range(1, _LOOKS + 1):
            decision = Decision() if write is None else await self._admission.decide(write)
            body = content
            if write is not None and decision.edit is not None:
                content = await _whole(request, content)
                body = await self._edited(write, content, decision.edit)
            if isinstance(body, bytes):
                headers[hdrs.CONTENT_LENGTH] = str(len(body))
            async with await self._send(request, headers, body, decision.query) as upstream:
                failed = upstream.status in _PRECONDITION_FAILED and look < _LOOKS
                if failed and write and await self._admission.is_outdated(write, decision):
                    continue
                if self._recorder is not None:
                    await self._recorder.answered(
                        request, grant, body, upstream.status, write.requests if write else ()
                    )
                if upstream.status == _SWITCHING:
                    return await tunnel.join(request, upstream)
                return await self._answer(request, upstream, exchange)
        raise AssertionError("the last look is answered")

    async def _edited(self, write: Write, body: bytes, edit: Callable[[bytes], bytes]) -> bytes:
        """Return the body to send. Raises Refusal for one beyond the bounds."""
        try:
            if bodies.is_quick(write.kind, len(body)):
                return edit(body)
            async with write.grant.decoding:
                return await self._offloop.call(edit, body)
        except DecodingError as error:
            raise Refusal(400, str(error)) from error

    async def _send(
        self,
        request: web.BaseRequest,
        headers: CIMultiDict[str],
        body: bytes | _Stream | None,
        query: str,
    ) -> aiohttp.ClientResponse:
        server = self._connection.server
        path = request.raw_path
        if query:
            path += ("&" if "?" in path else "?") + query
        try:
            return await self._connection.http.request(
                request.method,
                self._connection.url(path),
                headers=headers,
                skip_auto_headers=_AUTOMATIC,
                data=_payload(body),
                allow_redirects=False,
                auto_decompress=False,
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = f"cannot reach the API server {server}: {error}"
            raise Refusal(503, reason, retry_after=1) from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(body, _Stream) and body.fault is not None:
                raise body.fault from error
            reason = str(error) or type(error).__name__
            raise Refusal(502, f"no answer from the API server {server}: {reason}") from error

    async def _answer(
        self,
        request: web.BaseRequest,
        upstream: aiohttp.ClientResponse,
        exchange: Exchange | None,
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            status=upstream.status,
            reason=upstream.reason,
            headers=response_headers(upstream.headers),
        )
        await response.prepare(request)
        chunks: AsyncIterator[bytes] = aiter(upstream.content.iter_any())
        if exchange is not None and upstream.status in _OK:
            chunks = self._witnessed(upstream, exchange, chunks)
        try:
            async for chunk in chunks:
                await response.write(chunk)
        except aiohttp.ClientPayloadError as error:
            # Too late for a Status: only a cut connection tells the client that this is not all.
            _log.warning(
                "The API server ended an answer early", path=request.path, reason=str(error)
            )
            if request.transport is not None:
                request.transport.close()
        else:
            await response.write_eof()
        return response

    async def _witnessed(
        self,
        upstream: aiohttp.ClientResponse,
        exchange: Exchange,
        chunks: AsyncIterator[bytes],
    ) -> AsyncIterator[bytes]:
        """Pass chunks on, but the last one only after the witness has looked at all of them."""
        seen, held = bytearray(), b""
        async for chunk in chunks:
            if held:
                yield held
            held = chunk
            if len(seen) <= LARGEST:
                seen += chunk
        if len(seen) <= LARGEST:
            kind = upstream.headers.get(hdrs.CONTENT_TYPE, "")
            created = upstream.status == _CREATED
            await self._witness.look(exchange, kind, bytes(seen), created=created)
        if held:
            yield held


def _tell_read(request: web.BaseRequest, info: RequestInfo | None) -> None:
    # There is no cache to look into. Tests of existing projects wait for this line, at level 2.
    if request.method == "GET" and info is not None:
        told = info.told(request.path, watch=request.query.get("watch") in _TRUE)
        _log.debug("Skipping cache lookup", resource=told)


def _exchange(
    request: web.BaseRequest,
    grant: Grant | None,
    info: RequestInfo | None,
    body: bytes | _Stream | None,
) -> Exchange | None:
    """Return the exchange if its answer is to be looked at: a write, or a GET of one object."""
    if grant is None or info is None or info.watch or request.query.get("dryRun"):
        return None
    if request.method == "GET":
        single = info.name and not info.subresource and not request.query.get("watch")
        return Exchange(grant, "GET", info) if single else None
    kind = bodies.media_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
    if request.method not in WRITES:
        return None
    if request.method == "DELETE" and isinstance(body, bytes) and bodies.is_dry_run(kind, body):
        return None
    return Exchange(grant, request.method, info)


def _write(
    request: web.BaseRequest,
    grant: Grant | None,
    info: RequestInfo | None,
    content: bytes | _Stream | None,
) -> Write | None:
    """Return the request as a write of a run; None for any other."""
    if grant is None or info is None or not is_write(request.method, info):
        return None
    query = request.query
    return Write(
        grant,
        request.method,
        info,
        bodies.media_type(request.headers.get(hdrs.CONTENT_TYPE, "")),
        has_body=bool(content),
        manager=query.get("fieldManager", ""),
        dry_run=bool(query.get("dryRun")),
        selection=tuple((key, query[key]) for key in _SELECTORS if key in query),
    )


async def _content(request: web.BaseRequest) -> bytes | _Stream | None:
    """Return the body: read as a whole where it is small or has to be looked at."""
    if not request.body_exists:
        return None
    length = request.content_length
    if request.method == "DELETE" or (length is not None and length <= _ONE_PIECE):
        # What is held can be sent again, should the operator's credentials have run out.
        return await _read(request)
    return _Stream(request)


async def _whole(request: web.BaseRequest, content: bytes | _Stream | None) -> bytes:
    """Return a body that gets an owner or a precondition. Raises Refusal if it cannot be read."""
    kind = bodies.media_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
    if bodies.is_foreign(kind) or hdrs.CONTENT_ENCODING in request.headers:
        reason = f"send JSON, YAML or protobuf, not compressed, in place of {kind}"
        raise Refusal(415, reason)
    return content if isinstance(content, bytes) else await _read(request)


async def _read(request: web.BaseRequest) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS_FOR_BODY):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > LARGEST:
                    raise Refusal(413, f"the body is larger than {LARGEST} bytes")
    except (TimeoutError, web.RequestPayloadError) as error:
        raise _unread(error) from error
    return bytes(body)


class _Stream:
    """A body that is passed on while it comes; one that stops coming ends with `fault`."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._content = request.content
        self.fault: Refusal | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                async with asyncio.timeout(_SECONDS_FOR_BODY):
                    chunk = await self._content.readany()
                if not chunk:
                    return
                yield chunk
        except (TimeoutError, web.RequestPayloadError) as error:
            self.fault = _unread(error)
            raise


def _unread(error: Exception) -> Refusal:
    if isinstance(error, TimeoutError):
        return Refusal(408, f"the body did not come within {_SECONDS_FOR_BODY} s; send it faster")
    return Refusal(400, f"the body is incomplete or malformed: {error}")


def _payload(body: bytes | _Stream | None) -> Any:
    # aiohttp sends bytes in one piece, and warns of large ones, but a file in many.
    if isinstance(body, bytes) and len(body) > _ONE_PIECE:
        return io.BytesIO(body)
    return body


async def _invite_body(request: web.BaseRequest) -> None:
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
