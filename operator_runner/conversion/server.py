"""HTTPS for the API server: POST /convert with a ConversionReview. The I/O around `review`."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog
from aiohttp import web

from operator_runner.conversion.converter import ConversionError
from operator_runner.conversion.review import BadReview, Converters, Review
from operator_runner.core.model import Json
from operator_runner.net.connections import Connections, large_share
from operator_runner.net.sockets import Listener
from operator_runner.telemetry.servers import serve

PATH = "/convert"
_MOST = 1 << 30
"""Bytes of a request: a list of all objects of a kind comes as one."""
_INLINE = 64 * 1024
"""Bytes of a request that is answered in the event loop; larger ones take a thread."""

_log = structlog.get_logger(__name__)

Answered = Callable[[str, int], None]
"""Takes the result of a review, `success` or `failure`, and the number of its objects."""


async def serve_conversions(
    converters: Converters, port: int, context: ssl.SSLContext, answered: Answered
) -> Listener:
    """Listen on every interface; raises ConfigError if the port (0: any) cannot be had."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="conversions")

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            if len(body) <= _INLINE:
                reply = _reply(body, converters)
            else:
                loop = asyncio.get_running_loop()
                reply = await loop.run_in_executor(thread, _reply, body, converters)
        except BadReview as error:
            return web.Response(status=400, text=f"{error}\n")
        answered(reply.result, reply.objects)
        return web.Response(body=reply.body, content_type="application/json")

    async def close(_: web.Application) -> None:
        thread.shutdown(wait=False, cancel_futures=True)

    app = web.Application(client_max_size=_MOST)
    app.router.add_post(PATH, answer)
    app.on_cleanup.append(close)
    connections = Connections(large_share())
    return await serve(app, "", port, "--webhook-port", context, connections=connections)


@dataclass(frozen=True, slots=True)
class _Reply:
    """The answer to a review: `result` is `success` or `failure`, `objects` how many it has."""

    result: str
    objects: int
    body: bytes


def _reply(body: bytes, converters: Converters) -> _Reply:
    """Return the answer to the body of a request, whatever is in it. Raises BadReview."""
    try:
        review = Review(json.loads(body), converters)
    except RecursionError as error:
        raise BadReview("the review is nested too deep") from error
    except ValueError as error:
        raise BadReview(f"the body is not JSON: {error}") from error
    converted: list[Json] = []
    try:
        converted.extend(review.convert())
        return _Reply("success", len(converted), _encoded(review.success(converted)))
    except ConversionError as error:
        _log.warning("An object cannot be converted", reason=str(error))
        failure = review.failure(error)
    except RecursionError:
        failure = review.failure(ConversionError("an object is nested too deep to be converted"))
    except Exception:  # noqa: BLE001 the API server shows the message, and nothing of a bare 500
        _log.exception("Internal error in a conversion")
        reason = "internal error of the conversion; the operator's log has its traceback"
        failure = review.failure(ConversionError(reason))
    return _Reply("failure", len(converted), _encoded(failure))


def _encoded(review: Json) -> bytes:
    return json.dumps(review).encode()
