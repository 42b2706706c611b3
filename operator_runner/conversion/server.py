"""The HTTPS server of the webhook: POST /convert with a ConversionReview v1.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
defines the response: the same uid, all objects in the order of the request, or one Failure.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import structlog
from aiohttp import web

from operator_runner.conversion.converter import ConversionError, Converter, name_of
from operator_runner.conversion.preserved_fields import DeepValues
from operator_runner.core.host_resources import HostResources
from operator_runner.core.model import GVK, Json
from operator_runner.net.sockets import Connections, Listener, large_share
from operator_runner.telemetry.servers import serve

Converters: TypeAlias = Mapping[tuple[str, str], Converter]
"""Converters by group and kind."""

API_VERSION = "apiextensions.k8s.io/v1"


class InvalidReview(Exception):
    """The request is not a ConversionReview v1; the message names what is missing."""


class Review:
    """A validated ConversionReview; its objects are converted one by one."""

    def __init__(self, body: Any, converters: Converters) -> None:
        """Validate the decoded body of the request; raises InvalidReview."""
        if not isinstance(body, dict) or body.get("kind") != "ConversionReview":
            raise InvalidReview("expected a ConversionReview")
        if body.get("apiVersion") != API_VERSION:
            raise InvalidReview(
                f"unsupported apiVersion {body.get('apiVersion')!r}: expected {API_VERSION}; "
                "set conversionReviewVersions: [v1] in the CRD"
            )
        request = body.get("request")
        if not isinstance(request, dict):
            raise InvalidReview("request is missing")
        for key, kind in (("uid", str), ("desiredAPIVersion", str), ("objects", list)):
            if not isinstance(request.get(key), kind):
                raise InvalidReview(f"request.{key} is missing")
        self._uid: str = request["uid"]
        self._desired = GVK.of(request["desiredAPIVersion"], "")
        self._objects: list[Any] = request["objects"]
        self._converters = converters

    def convert(self) -> Iterator[Json]:
        """Yield the objects in the desired version, in order.

        Raises ConversionError, and RecursionError for objects that are nested too deep.
        """
        for body in self._objects:
            yield self._convert(body)

    def success(self, converted: list[Json]) -> Json:
        """Return the response with the converted objects."""
        return self._answer({"convertedObjects": converted, "result": {"status": "Success"}})

    def failure(self, error: ConversionError) -> Json:
        """Return the response with an error message, which users see."""
        return self._answer({"result": {"status": "Failure", "message": str(error)}})

    def _convert(self, body: Any) -> Json:
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            raise ConversionError("cannot convert an object without metadata")
        gvk = GVK.of(str(body.get("apiVersion", "")), str(body.get("kind", "")))
        converter = self._converters.get((gvk.group, gvk.kind))
        if converter is None or gvk.group != self._desired.group:
            raise ConversionError(
                f"{name_of(body)}: cannot convert {gvk.api_version} to "
                f"{self._desired.api_version}: watches.yaml has no conversion between them"
            )
        return converter.convert(body, self._desired.version)

    def _answer(self, response: Json) -> Json:
        return {
            "apiVersion": API_VERSION,
            "kind": "ConversionReview",
            "response": {"uid": self._uid, **response},
        }


PATH = "/convert"
_MAX_REQUEST_BYTES = 1 << 30
"""A list of all objects of a kind is one request."""
_REQUEST_SHARE, _REVIEW_SHARE = 8, 2
"""Divisors of the memory: for the body of a request, of which two are received at once, and for the
one review that is decoded. Clients are not authenticated, so more would end the operator."""
_MAX_REVIEW_MEMORY = 1 << 30
"""Some 100,000 objects. Decoding holds the interpreter's lock, for seconds if it is more."""
_PART_BYTES = 100
"""Memory of a decoded value, on average. Short values take most for their size."""
_INLINE_BYTES = 64 * 1024
"""Larger requests are converted in a thread, outside the event loop."""

_TOO_LARGE = (
    "the review is too large ({} bytes): raise the memory limit of the operator's container, or"
    " request the objects in pages\n"
)

_log = structlog.get_logger(__name__)

ReviewCallback = Callable[[str, int], None]
"""Takes the result of a review, `success` or `failure`, and the number of its objects."""


async def serve_conversions(
    converters: Converters,
    port: int,
    context: ssl.SSLContext,
    on_review: ReviewCallback,
    *,
    memory: int | None = None,
) -> Listener:
    """Listen on every interface; raises ConfigError if `port` (0: any free one) fails.

    `memory` is what the operator may use, in bytes; None: what the machine or container has.
    """
    available = HostResources().memory() if memory is None else memory
    largest = min(_MAX_REVIEW_MEMORY, available // _REVIEW_SHARE)
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="conversions")

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if memory_for(body) > largest:
            return web.Response(status=413, text=_TOO_LARGE.format(len(body)))
        try:
            if len(body) <= _INLINE_BYTES:
                reply = _reply(body, converters)
            else:
                loop = asyncio.get_running_loop()
                reply = await loop.run_in_executor(thread, _reply, body, converters)
        except InvalidReview as error:
            return web.Response(status=400, text=f"{error}\n")
        on_review(reply.result, reply.objects)
        return web.Response(body=reply.body, content_type="application/json")

    async def close(_: web.Application) -> None:
        thread.shutdown(wait=False, cancel_futures=True)

    limit = min(_MAX_REQUEST_BYTES, available // _REQUEST_SHARE)
    app = web.Application(client_max_size=limit)
    app.router.add_post(PATH, answer)
    app.on_cleanup.append(close)
    connections = Connections(large_share())
    return await serve(app, "", port, "--webhook-port", context, connections=connections)


def memory_for(body: bytes) -> int:
    """Return about how many bytes of memory a body in JSON and its decoded value take."""
    return 2 * len(body) + _PART_BYTES * sum(map(body.count, (b"{", b"[", b",")))


@dataclass(frozen=True, slots=True)
class _Reply:
    """The response to a review: `result` is `success` or `failure`, `objects` their number."""

    result: str
    objects: int
    body: bytes


def _reply(body: bytes, converters: Converters) -> _Reply:
    """Return the response to the body of a request. Raises InvalidReview."""
    with suppress(RecursionError):
        return _converted(body, converters)
    values = DeepValues(body)
    try:
        reply = _converted(values.shallow, converters)
    except RecursionError as error:  # of brackets that are not closed
        raise InvalidReview("the review is nested too deep") from error
    return replace(reply, body=values.restore(reply.body))


def _converted(body: bytes, converters: Converters) -> _Reply:
    """Return the response to a review. Raises InvalidReview and RecursionError."""
    try:
        review = Review(json.loads(body), converters)
    except ValueError as error:
        raise InvalidReview(f"the body is not JSON: {error}") from error
    converted: list[Json] = []
    try:
        converted.extend(review.convert())
        return _Reply("success", len(converted), _encoded(review.success(converted)))
    except ConversionError as error:
        _log.warning("Cannot convert an object", error=str(error))
        failure = review.failure(error)
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 the API server shows this message, but not that of a 500
        _log.exception("Internal error in a conversion")
        reason = "internal error; the operator's log has its traceback"
        failure = review.failure(ConversionError(reason))
    return _Reply("failure", len(converted), _encoded(failure))


def _encoded(review: Json) -> bytes:
    return json.dumps(review).encode()
