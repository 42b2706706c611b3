"""Authenticate and authorize clients of metrics by TokenReview and SubjectAccessReview."""

from __future__ import annotations

from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from operator_runner.net.serving_certificate import unverified_context
from operator_runner.telemetry.authorization import User
from operator_runner.telemetry.servers import Protection

_TIMEOUT_SECONDS = 10.0
"""A scraper does not wait longer than that."""


class KubeReviews:
    """Implements `telemetry.authorization.Reviews` with the API server."""

    def __init__(self, api: Api) -> None:
        """Send reviews with the operator's own permissions."""
        self._api = api

    async def user_of(self, token: str) -> User | None:
        """Return the user of a token, None if it is invalid; raises ApiError."""
        status = await self._review("authentication.k8s.io", "TokenReview", {"token": token})
        if not status.get("authenticated"):
            return None
        user = status["user"]
        return User(
            user.get("username", ""),
            user.get("uid", ""),
            tuple(user.get("groups") or ()),
            {key: tuple(values) for key, values in (user.get("extra") or {}).items()},
        )

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Return whether `user` may `verb` a non-resource URL; raises ApiError."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        status = await self._review("authorization.k8s.io", "SubjectAccessReview", spec)
        return bool(status.get("allowed"))

    async def _review(self, group: str, kind: str, spec: Json) -> Json:
        answer = await self._api.request(
            "POST",
            f"/apis/{group}/v1/{kind.lower()}s",
            body={"apiVersion": f"{group}/v1", "kind": kind, "spec": spec},
            timeout=_TIMEOUT_SECONDS,
        )
        return answer.get("status") or {}


def protection_of(api: Api, *, secure: bool, require_rbac: bool) -> Protection:
    """Return the protection of metrics by --metrics-secure and --metrics-require-rbac."""
    if not secure:
        return Protection()
    context = unverified_context("operator-runner metrics", ["localhost"])
    return Protection(context, KubeReviews(api) if require_rbac else None)
