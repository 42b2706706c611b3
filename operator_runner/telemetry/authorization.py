"""Who may read metrics, where --metrics-require-rbac asks for it: the API server decides.

A scraper brings its bearer token; a TokenReview says whose it is, a SubjectAccessReview whether
that user may `get` the path. The answers are those of controller-runtime's filter, except that
an invalid token is 401 and not 500. Decisions are kept for a short while.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from operator_runner.core.errors import ApiError

_log = structlog.get_logger(__name__)

_ALLOWED = 60.0
_DENIED = 10.0
"""Seconds that a decision is kept; a right that was just granted should soon work."""
_MOST = 1000
"""Decisions that are kept at once: anybody can send invented tokens."""


@dataclass(frozen=True, slots=True)
class User:
    """Whose a token is, as the TokenReview tells it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Reviews(Protocol):
    """Asks the API server; both methods raise ApiError where it does not answer the question."""

    async def user_of(self, token: str) -> User | None:
        """Return whose token it is, None if it is invalid."""

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Whether `user` may do `verb` on a path that is no resource."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a scraper is told: 200 stands for the answer that it came for."""

    status: int
    text: str = ""


_UNAUTHORIZED = _Decision(401, "Unauthorized")


def require_permission(reviews: Reviews, clock: Callable[[], float] = time.monotonic) -> Middleware:
    """Return a middleware that lets only those through who may; `clock` gives seconds."""
    kept = _Kept(clock)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        token = _bearer(request.headers.get(hdrs.AUTHORIZATION, ""))
        decision = _UNAUTHORIZED
        if token:
            verb, path = request.method.lower(), request.path
            key = hashlib.sha256(f"{verb} {path} {token}".encode()).digest()
            known = kept.get(key)
            decision = known or await _decide(reviews, token, verb, path)
            if known is None:
                kept.put(key, decision)
        if decision.status == web.HTTPOk.status_code:
            return await handler(request)
        headers = {"X-Content-Type-Options": "nosniff"}
        return web.Response(status=decision.status, text=decision.text + "\n", headers=headers)

    return check


async def _decide(reviews: Reviews, token: str, verb: str, path: str) -> _Decision:
    try:
        user = await reviews.user_of(token)
    except ApiError as error:
        _log.error("A scraper's token could not be reviewed", reason=str(error), cure=_CURE)
        return _Decision(500, "Authentication failed")
    if user is None:
        return _UNAUTHORIZED
    try:
        allowed = await reviews.may(user, verb, path)
    except ApiError as error:
        _log.error("A scraper's right could not be reviewed", reason=str(error), cure=_CURE)
        return _Decision(500, f"Authorization for user {user.name} failed")
    return (
        _Decision(200) if allowed else _Decision(403, f"Authorization denied for user {user.name}")
    )


_CURE = (
    "the operator's ServiceAccount needs `create` on tokenreviews.authentication.k8s.io and "
    "subjectaccessreviews.authorization.k8s.io"
)


class _Kept:
    """The latest decisions, each for its time; failures to ask are not kept."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._decisions: OrderedDict[bytes, tuple[float, _Decision]] = OrderedDict()

    def get(self, key: bytes) -> _Decision | None:
        until, decision = self._decisions.get(key, (0.0, None))
        return decision if self._clock() < until else None

    def put(self, key: bytes, decision: _Decision) -> None:
        if decision.status == web.HTTPInternalServerError.status_code:
            return
        allowed = decision.status == web.HTTPOk.status_code
        self._decisions[key] = (self._clock() + (_ALLOWED if allowed else _DENIED), decision)
        self._decisions.move_to_end(key)
        while len(self._decisions) > _MOST:
            self._decisions.popitem(last=False)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
