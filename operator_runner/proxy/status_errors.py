"""Errors of the proxy itself, sent as Status objects: clients show their message."""

from __future__ import annotations

import json

from aiohttp import hdrs, web

from operator_runner.core.errors import ApiError, Fenced, Forbidden, Unavailable
from operator_runner.proxy.request_info import RequestInfo

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    408: "Timeout",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    421: "MisdirectedRequest",
    429: "TooManyRequests",
    500: "InternalError",
    502: "InternalError",
    503: "ServiceUnavailable",
}
_CLIENT_ERRORS = range(400, 500)


class StatusError(Exception):
    """A request that the proxy does not forward, or that the API server did not answer."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        retry_after: int | None = None,
        own: bool = True,
    ) -> None:
        """`reason` is by default that of the API for the code.

        `retry_after`, in seconds: nothing was done and the client may retry.

        `own` False is an error that the API server would return; its message omits the proxy.
        """
        super().__init__(message)
        self.code = code
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.own = own
        self.retry_after = retry_after

    def response(self) -> web.Response:
        """Return a Status of the Kubernetes API."""
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"operator-runner's proxy: {self}" if self.own else str(self),
            "reason": self.reason,
            "code": self.code,
        }
        headers = {} if self.retry_after is None else {hdrs.RETRY_AFTER: str(self.retry_after)}
        return web.Response(
            status=self.code,
            body=json.dumps(status).encode(),
            content_type="application/json",
            headers=headers,
        )


def not_found(info: RequestInfo) -> StatusError:
    """Return what the API server answers about an object that does not exist."""
    return StatusError(404, f'{info.plural} "{info.name}" not found', own=False)


def error_of_request(error: ApiError, what: str) -> StatusError:
    """Return the error for a run whose request needs another one, which failed.

    If the API server rejects that because of what the run has named, the run gets the same status.
    """
    if isinstance(error, Fenced):
        return StatusError(403, str(error))
    if isinstance(error, Forbidden):
        return StatusError(403, f"{what}: {error}; grant the operator this permission")
    if isinstance(error, Unavailable):
        return StatusError(503, f"{what}: {error}", retry_after=1)
    return StatusError(error.status if error.status in _CLIENT_ERRORS else 502, f"{what}: {error}")
