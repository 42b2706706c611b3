"""Send the requests of a dry run to the API server."""

from __future__ import annotations

import aiohttp
from aiohttp import hdrs

from operator_runner.kube.api import JSON
from operator_runner.kube.decoding import decode_json
from operator_runner.kube.session import Connection
from operator_runner.proxy.dry_run.responses import ApiResponse
from operator_runner.proxy.status_errors import StatusError


async def send(
    connection: Connection,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    content_type: str = "",
    agent: str = "",
) -> ApiResponse:
    """Send a request with a JSON response. Raises StatusError without one."""
    headers = {hdrs.ACCEPT: JSON}
    if content_type:
        headers[hdrs.CONTENT_TYPE] = content_type
    if agent:
        headers[hdrs.USER_AGENT] = agent
    try:
        async with connection.http.request(
            method, connection.url(path), data=body or None, headers=headers
        ) as response:
            content = await response.read()
            return ApiResponse(response.status, decode_json(content), response.headers)
    except (aiohttp.ClientError, OSError) as error:
        reason = f"no response from the API server {connection.server}: {error}"
        raise StatusError(502, reason) from error
    except ValueError as error:
        raise StatusError(502, f"the API server's response is not JSON: {error}") from error
