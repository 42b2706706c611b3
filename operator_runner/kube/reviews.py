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
        self._own_name = ""

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user of a token, None if it is invalid; raises ApiError.

        With `audience`, a token is valid for that audience only, else for the API server's own.
        """
        spec: Json = {"token": token, **({"audiences": [audience]} if audience else {})}
        status = await self._review("authentication.k8s.io", "TokenReview", spec)
        if not status.get("authenticated"):
            return None
        if audience and audience not in (status.get("audiences") or ()):
            return None
        user = status["user"]
        return User(
            user.get("username", ""),
            user.get("uid", ""),
            tuple(user.get("groups") or ()),
            {key: tuple(values) for key, values in (user.get("extra") or {}).items()},
        )

    async def own_name(self) -> str:
        """Return the name of the operator's own user; raises ApiError."""
        if not self._own_name:
            status = await self._review("authentication.k8s.io", "SelfSubjectReview", None)
            self._own_name = str((status.get("userInfo") or {}).get("username") or "")
        return self._own_name

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

    async def _review(self, group: str, kind: str, spec: Json | None) -> Json:
        body: Json = {"apiVersion": f"{group}/v1", "kind": kind}
        answer = await self._api.request(
            "POST",
            f"/apis/{group}/v1/{kind.lower()}s",
            body=body if spec is None else {**body, "spec": spec},
            timeout=_TIMEOUT_SECONDS,
        )
        return answer.get("status") or {}


def protection_of(api: Api, *, secure: bool, require_rbac: bool) -> Protection:
    """Return the protection of metrics by --metrics-secure and --metrics-require-rbac."""
    if not secure:
        return Protection()
    context = unverified_context("operator-runner metrics", ["localhost"])
    return Protection(context, KubeReviews(api) if require_rbac else None)
