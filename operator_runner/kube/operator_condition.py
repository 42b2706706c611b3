"""OLM's OperatorCondition: the object through which an operator reports its state to OLM.

OLM creates one for each ClusterServiceVersion and grants the operator get, update and patch of it.
Since v2 an operator writes `spec.conditions`; OLM copies them into the status, and an
administrator's `spec.overrides` win over them. Only the conditions are ever written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from operator_runner.core.errors import Conflict
from operator_runner.core.fencing import UNFENCED, Fence
from operator_runner.core.model import Json
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api

_API_VERSION = "operators.coreos.com/v2"
_TRIES = 5
"""OLM writes the same object; more conflicts in a row have another cause."""
_TIMEOUT_SECONDS = 5.0
"""Timeout of each request; a run may be waiting for it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to set: `status` is True, False or Unknown, `reason` is in CamelCase."""

    type: str
    status: str
    reason: str
    message: str


class OperatorCondition:
    """Sets conditions of one OperatorCondition."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        """Use the object `namespace`/`name`; send nothing yet."""
        self.name, self.namespace = name, namespace
        self._api = api
        self._path = f"/apis/{_API_VERSION}/namespaces/{namespace}/operatorconditions/{name}"

    async def set(self, condition: Condition, fence: Fence = UNFENCED) -> None:
        """Set `condition`; write only if it differs. Raises ApiError.

        Conditions of other types are kept, also those of a concurrent write.
        """
        for left in reversed(range(_TRIES)):
            body = await self._api.request("GET", self._path, timeout=_TIMEOUT_SECONDS)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions = with_condition((body.get("spec") or {}).get("conditions"), condition, now)
            if conditions is None:
                return
            patch = {
                # Of two concurrent writers of the list, one gets a Conflict and reads again.
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
                    timeout=_TIMEOUT_SECONDS,
                    fence=fence,
                )
            except Conflict:
                if not left:
                    raise
            else:
                return


def with_condition(
    conditions: Sequence[Json] | None, condition: Condition, now: str
) -> list[Json] | None:
    """Return the conditions with `condition` set, or None if it is already set.

    `now`, in RFC 3339, is the transition time if the status changes. A second condition of the
    type, which the schema of the CRD accepts, is removed.
    """
    same = [one for one in conditions or () if one.get("type") == condition.type]
    content = {"status": condition.status, "reason": condition.reason, "message": condition.message}
    if len(same) == 1 and content.items() <= same[0].items():
        return None
    kept = same and same[0].get("status") == condition.status
    since = same[0].get("lastTransitionTime", now) if kept else now
    others = [one for one in conditions or () if one.get("type") != condition.type]
    return [*others, {"type": condition.type, **content, "lastTransitionTime": since}]
