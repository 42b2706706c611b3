"""Block upgrades by OLM during runs with `blockUpgrade`.

The condition Upgradeable is written to the OperatorCondition that OLM names in
OPERATOR_CONDITION_NAME; without the variable nothing is written. See ADR 0013.

OLM creates an OperatorCondition for each ClusterServiceVersion and grants the operator get, update
and patch of it. Since v2 an operator writes `spec.conditions`; OLM copies them into the status, and
an administrator's `spec.overrides` win over them. Only the conditions are ever written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from operator_runner.config.watches.selection import blocks_upgrade
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict, Forbidden
from operator_runner.core.fencing import UNFENCED, Fence, LeaseTerm
from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api

_API_VERSION = "operators.coreos.com/v2"
_WRITE_ATTEMPTS = 5
"""OLM writes the same object; more conflicts in a row have another cause."""
_REQUEST_TIMEOUT_SECONDS = 5.0
"""Timeout of each request; a run may be waiting for it."""
_TYPE = "Upgradeable"
_RESYNC_SECONDS = 300.0
"""Interval at which the condition is written again, in case something removed it."""
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 1.0, 60.0
"""Backoff; OLM creates the object and its Role while the operator starts."""
_TIMEOUT_SECONDS = 10.0
"""Time that a run waits until its condition is written."""
_MAX_NAMES = 3
"""Maximum resources in a message."""

_log = structlog.get_logger(__name__)


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
        for left in reversed(range(_WRITE_ATTEMPTS)):
            body = await self._api.request("GET", self._path, timeout=_REQUEST_TIMEOUT_SECONDS)
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
                    timeout=_REQUEST_TIMEOUT_SECONDS,
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


def upgradeable_condition(busy: Sequence[ObjectRef]) -> Condition:
    """Return the condition Upgradeable while runs of `busy` block upgrades. Pure."""
    if not busy:
        return Condition(
            _TYPE, "True", "OperatorUpgradeable", "The operator is currently upgradeable"
        )
    names = ", ".join(str(ref) for ref in busy[:_MAX_NAMES])
    more = f" and {len(busy) - _MAX_NAMES} more" if len(busy) > _MAX_NAMES else ""
    message = (
        f"The operator is currently busy with runs that must not be interrupted: {names}{more}"
    )
    return Condition(_TYPE, "False", "OperatorBusy", message)


class OperatorConditionReporter:
    """Keeps the condition Upgradeable False during runs that block upgrades."""

    def __init__(self, condition: OperatorCondition, term: LeaseTerm | None = None) -> None:
        """Write to `condition`; `term` is that of the leader, None without leader election."""
        self._condition = condition
        self._term = term
        # In the order in which they began.
        self._busy: dict[ObjectRef, None] = {}
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._reported: Condition | None = None
        self._failures = Deduplicator()

    @asynccontextmanager
    async def guard(self, body: Json, watch: Watch) -> AsyncIterator[None]:
        """Block upgrades inside the block, if `blockUpgrade` of the watch holds for this resource.

        The condition is written before the block begins. If that fails, the failure is logged
        and the block begins nevertheless.
        """
        if not blocks_upgrade(body, watch):
            yield
            return
        ref = ObjectRef.of(body)
        self._busy[ref] = None
        try:
            if not await self._report():
                _log.warning(
                    "Starting a run that an upgrade may interrupt: OLM could not be notified"
                )
            yield
        finally:
            del self._busy[ref]
            self._changed.set()

    async def run(self) -> None:
        """Keep the condition up to date until cancelled. API errors are logged and retried."""
        retry = _MIN_BACKOFF_SECONDS
        while True:
            self._changed.clear()
            if await self._report():
                wait, retry = _RESYNC_SECONDS, _MIN_BACKOFF_SECONDS
            else:
                wait, retry = retry, min(retry * 2, _MAX_BACKOFF_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def report_idle(self) -> None:
        """Report after the last run that the operator is upgradeable, if it was reported busy."""
        if self._reported is not None and self._reported != upgradeable_condition(()):
            await self._report()

    async def _report(self) -> bool:
        """Write the current condition; return whether that succeeded."""
        try:
            # Serialized; each write has the state at its own time.
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._lock:
                condition = upgradeable_condition(tuple(self._busy))
                await self._condition.set(condition, Fence(self._term))
        except (ApiError, TimeoutError) as error:
            self._log_failure(error)
            return False
        if condition != self._reported:
            _log.info(
                "Reported the Upgradeable condition to OLM",
                upgradeable=condition.status,
                reason=condition.message,
            )
        self._reported = condition
        self._failures.reset()
        return True

    def _log_failure(self, error: Exception) -> None:
        """Log a failure unless it is the same as the last one."""
        assert self._condition is not None
        message = str(error) or f"no answer within {_TIMEOUT_SECONDS:g} s"
        if not self._failures.is_new(message):
            return
        extra = {"operatorcondition": f"{self._condition.namespace}/{self._condition.name}"}
        if isinstance(error, Forbidden):
            extra["grant"] = "get and patch of this object; OLM does it for the accounts of the CSV"
        _log.warning("Cannot report the Upgradeable condition to OLM", error=message, **extra)
