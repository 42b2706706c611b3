"""Asks the API server who reads metrics, and whether they may.

TokenReview and SubjectAccessReview are the two questions.
"""

from __future__ import annotations

from operator_runner.core.model import Json
from operator_runner.kube.api import Api
from operator_runner.net.serving_certificate import unverified_context
from operator_runner.telemetry.authorization import User
from operator_runner.telemetry.servers import Protection

_TIMEOUT = 10.0
"""Seconds; a scraper does not wait longer than that."""


class KubeReviews:
    """`observe.authorization.Reviews` on the real API."""

    def __init__(self, api: Api) -> None:
        """Ask with the operator's own rights."""
        self._api = api

    async def user_of(self, token: str) -> User | None:
        """Return whose token it is, None if it is invalid; raises ApiError."""
        status = await self._ask("authentication.k8s.io", "TokenReview", {"token": token})
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
        """Whether `user` may do `verb` on a path that is no resource; raises ApiError."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        status = await self._ask("authorization.k8s.io", "SubjectAccessReview", spec)
        return bool(status.get("allowed"))

    async def _ask(self, group: str, kind: str, spec: Json) -> Json:
        answer = await self._api.request(
            "POST",
            f"/apis/{group}/v1/{kind.lower()}s",
            body={"apiVersion": f"{group}/v1", "kind": kind, "spec": spec},
            timeout=_TIMEOUT,
        )
        return answer.get("status") or {}


def protection_of(api: Api, *, secure: bool, require_rbac: bool) -> Protection:
    """Return how metrics are guarded with --metrics-secure and --metrics-require-rbac."""
    if not secure:
        return Protection()
    context = unverified_context("operator-runner metrics", ["localhost"])
    return Protection(context, KubeReviews(api) if require_rbac else None)
