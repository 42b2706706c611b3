"""HTTPS for the API server: POST /convert with a ConversionReview. The I/O around `review`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import structlog
from aiohttp import web

from operator_runner.connections import Connections, large_share
from operator_runner.observe.servers import serve
from operator_runner.sockets import Listener
from operator_runner.webhooks.converter import ConversionError
from operator_runner.webhooks.review import BadReview, Converters, Review

PATH = "/convert"
_MOST = 1 << 30
"""Bytes of a request: a list of all objects of a kind comes as one."""
_AT_ONCE = 50
"""Objects between two looks at what else the process has to do; some milliseconds."""

_log = structlog.get_logger(__name__)

Answered = Callable[[str, int], None]
"""Takes the result of a review, `success` or `failure`, and the number of its objects."""


async def serve_conversions(
    converters: Converters, port: int, context: ssl.SSLContext, answered: Answered
) -> Listener:
    """Listen on every interface; raises ConfigError if the port (0: any) cannot be had."""

    async def answer(request: web.Request) -> web.Response:
        try:
            review = Review(await request.json(), converters)
        except (BadReview, ValueError) as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.json_response(await _answer(review, answered))

    app = web.Application(client_max_size=_MOST)
    app.router.add_post(PATH, answer)
    return await serve(
        app, "", port, "--webhook-port", context, connections=Connections(large_share())
    )


async def _answer(review: Review, answered: Answered) -> dict[str, object]:
    converted = []
    try:
        for body in review.convert():
            converted.append(body)
            if len(converted) % _AT_ONCE == 0:
                await asyncio.sleep(0)
    except ConversionError as error:
        _log.warning("An object cannot be converted", reason=str(error))
        answered("failure", len(converted))
        return review.failure(error)
    answered("success", len(converted))
    return review.success(converted)
