"""OLM's OperatorCondition: the object by which an operator tells OLM how it is.

OLM makes one for each ClusterServiceVersion and grants the operator get, update and patch of it.
Since v2 an operator writes `spec.conditions`; OLM copies them into the status, and an
administrator's `spec.overrides` win over them. Only the conditions are ever written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from operator_runner.core.errors import Conflict
from operator_runner.core.model import Json
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api

_API_VERSION = "operators.coreos.com/v2"
_TRIES = 5
"""OLM writes the same object; so many conflicts in a row are more than that."""
_TIMEOUT = 5.0
"""Seconds for each request; a run may be waiting for it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition is to say: `status` is True, False or Unknown, `reason` in CamelCase."""

    type: str
    status: str
    reason: str
    message: str


class OperatorCondition:
    """The conditions of one OperatorCondition."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        """Name the object; nothing is asked yet."""
        self.name, self.namespace = name, namespace
        self._api = api
        self._path = f"/apis/{_API_VERSION}/namespaces/{namespace}/operatorconditions/{name}"

    async def set(self, verdict: Verdict) -> None:
        """Have the condition say `verdict`; write only if it does not. Raises ApiError.

        Conditions of other types stay as they are; a write in between is read and kept.
        """
        for left in reversed(range(_TRIES)):
            body = await self._api.request("GET", self._path, timeout=_TIMEOUT)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions = with_verdict((body.get("spec") or {}).get("conditions"), verdict, now)
            if conditions is None:
                return
            patch = {
                # Of two who write the list at once, one gets a Conflict and reads again.
                "metadata": {"resourceVersion": body["metadata"]["resourceVersion"]},
                "spec": {"conditions": conditions},
            }
            try:
                await self._api.request(
                    "PATCH",
                    self._path,
                    params={"fieldManager": FIELD_MANAGER},
                    body=patch,
                    content_type=MERGE_PATCH,
                    timeout=_TIMEOUT,
                )
            except Conflict:
                if not left:
                    raise
            else:
                return


def with_verdict(
    conditions: Sequence[Json] | None, verdict: Verdict, now: str
) -> list[Json] | None:
    """Return the conditions with `verdict` among them, or None if they say it already.

    `now`, in RFC 3339, is the time of the transition where the status changes. A second
    condition of the type, which the schema of the CRD lets pass, goes.
    """
    same = [one for one in conditions or () if one.get("type") == verdict.type]
    said = {"status": verdict.status, "reason": verdict.reason, "message": verdict.message}
    if len(same) == 1 and said.items() <= same[0].items():
        return None
    kept = same and same[0].get("status") == verdict.status
    since = same[0].get("lastTransitionTime", now) if kept else now
    others = [one for one in conditions or () if one.get("type") != verdict.type]
    return [*others, {"type": verdict.type, **said, "lastTransitionTime": since}]
