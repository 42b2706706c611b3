"""Block upgrades by OLM during runs with `blockUpgrade`.

The condition Upgradeable is written to the OperatorCondition that OLM names in
OPERATOR_CONDITION_NAME; without the variable nothing is written. See ADR 0013.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import structlog

from operator_runner.config.watches.selection import blocks_upgrade
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.fencing import Fence, LeaseTerm
from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.kube.operator_condition import Condition, OperatorCondition

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
