"""Authorize readers of metrics and of the API; by the API server with --metrics-require-rbac.

A scraper sends its bearer token; a TokenReview returns its user, a SubjectAccessReview whether
that user may `get` the path. The answers are those of controller-runtime's filter, except that
an invalid token is 401 and not 500. Decisions are kept for a short while.

The API, below /api/, is never open: its readers need such a permission, or the key that the
operator writes to its work dir. See docs/adr/0039-operator-api.md.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from operator_runner.telemetry.runs.access import AUDIENCE, PERMISSION_PREFIX, PREFIX, TOKEN_HEADER

_log = structlog.get_logger(__name__)

_TIMEOUT_SECONDS = 10.0
"""A scraper does not wait longer than that."""
_ALLOWED_SECONDS = 60.0
_DENIED_SECONDS = 10.0
"""Time that a decision is cached; a permission that was just granted should soon work."""
_MAX_DECISIONS = 1000
"""Decisions in the cache: any client can send invented tokens."""


class Reviews:
    """Reviews by the API server; each method raises ApiError if a review fails."""

    def __init__(self, api: Api) -> None:
        """Send reviews with the operator's own permissions."""
        self._api = api
        self._own_name = ""

    async def user_of(self, token: str, audience: str = "") -> Json | None:
        """Return the user of a token as a TokenReview has it, None if the token is invalid.

        With `audience`, a token is valid for that audience only, else for the API server's own.
        """
        spec: Json = {"token": token, **({"audiences": [audience]} if audience else {})}
        status = await self._review("authentication.k8s.io", "TokenReview", spec)
        if not status.get("authenticated"):
            return None
        if audience and audience not in (status.get("audiences") or ()):
            return None
        user: Json = status["user"]
        return user

    async def own_name(self) -> str:
        """Return the name of the operator's own user."""
        if not self._own_name:
            status = await self._review("authentication.k8s.io", "SelfSubjectReview", None)
            self._own_name = str((status.get("userInfo") or {}).get("username") or "")
        return self._own_name

    async def may(self, user: Json, verb: str, path: str) -> bool:
        """Return whether `user` may `verb` a non-resource URL."""
        spec = {key: value for key, value in user.items() if key != "username"}
        spec["user"] = user.get("username", "")
        spec["nonResourceAttributes"] = {"path": path, "verb": verb}
        status = await self._review("authorization.k8s.io", "SubjectAccessReview", spec)
        return bool(status.get("allowed"))

    async def _review(self, group: str, kind: str, spec: Json | None) -> Json:
        body: Json = {"apiVersion": f"{group}/v1", "kind": kind}
        answer = await self._api.request(
            "POST",
            f"/apis/{group}/v1/{kind.lower()}s",
            body=body if spec is None else {**body, "spec": spec},
            timeout=_TIMEOUT_SECONDS,
        )
        return answer.get("status") or {}


@dataclass(frozen=True, slots=True)
class _Decision:
    """The response to a scraper; 200 is replaced by the metrics."""

    status: int
    text: str = ""


_UNAUTHORIZED = _Decision(401, "Unauthorized")
_NO_REVIEWS = _Decision(
    401,
    "Unauthorized: remote access to the API needs --metrics-secure and --metrics-require-rbac; "
    "on the operator's own machine it takes the key of api.json in the work dir",
)


def require_permission(
    reviews: Reviews | None, clock: Callable[[], float] = time.monotonic, *, api_key: str = ""
) -> Middleware:
    """Return a middleware that rejects unauthorized requests; `clock` gives seconds.

    Without `reviews` metrics are open. The API takes `api_key` as a bearer token, unless empty.
    """
    cache = _DecisionCache(clock)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        token = _bearer(request.headers.get(hdrs.AUTHORIZATION, ""))
        is_api, audience = request.path.startswith(PREFIX), ""
        if is_api and api_key and hmac.compare_digest(token.encode(), api_key.encode()):
            return await handler(request)
        if is_api and not token:
            token, audience = _ascii(request.headers.get(TOKEN_HEADER, "")), AUDIENCE
        if reviews is None and not is_api:
            return await handler(request)
        decision = _UNAUTHORIZED if reviews is not None else _NO_REVIEWS
        if token and reviews is not None:
            verb = request.method.lower()
            path = f"{PERMISSION_PREFIX if is_api else ''}{request.path}"
            key = hashlib.sha256(f"{verb} {path} {audience} {token}".encode()).digest()
            known = cache.get(key)
            decision = known or await _decide(reviews, token, audience, verb, path)
            if known is None:
                cache.put(key, decision)
        if decision.status == web.HTTPOk.status_code:
            return await handler(request)
        headers = {"X-Content-Type-Options": "nosniff"}
        return web.Response(status=decision.status, text=decision.text + "\n", headers=headers)

    return check


async def _decide(reviews: Reviews, token: str, audience: str, verb: str, path: str) -> _Decision:
    try:
        user = await reviews.user_of(token, audience)
    except ApiError as error:
        _log.error("Cannot review the token of a scraper", error=str(error), hint=_HINT)
        return _Decision(500, "Authentication failed")
    if user is None:
        return _UNAUTHORIZED
    name = user.get("username", "")
    try:
        # Those who may create such tokens of the operator's account have all of its permissions.
        is_own = bool(audience) and name == await reviews.own_name()
        allowed = is_own or await reviews.may(user, verb, path)
    except ApiError as error:
        _log.error("Cannot review the access of a scraper", error=str(error), hint=_HINT)
        return _Decision(500, f"Authorization for user {name} failed")
    return _Decision(200) if allowed else _Decision(403, f"Authorization denied for user {name}")


_HINT = (
    "the operator's ServiceAccount needs `create` on tokenreviews.authentication.k8s.io and "
    "subjectaccessreviews.authorization.k8s.io"
)


class _DecisionCache:
    """The latest decisions, until they expire; failed reviews are not cached."""

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
        self._decisions[key] = (
            self._clock() + (_ALLOWED_SECONDS if allowed else _DENIED_SECONDS),
            decision,
        )
        self._decisions.move_to_end(key)
        while len(self._decisions) > _MAX_DECISIONS:
            self._decisions.popitem(last=False)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return _ascii(token.strip()) if scheme.lower() == "bearer" else ""


def _ascii(token: str) -> str:
    """Return a token; empty for one with other characters, which is neither valid nor encodable.

    aiohttp decodes the bytes of headers with surrogates, and each failure would fill the log.
    """
    return token if token.isascii() else ""
