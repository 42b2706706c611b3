"""Tells OLM whether the operator may be upgraded now: not while a run must not be broken.

Which runs these are, `blockUpgrade` of watches.yaml says. What is told is the condition
Upgradeable of the OperatorCondition that OLM names in OPERATOR_CONDITION_NAME; where it names
none, nothing is told. ADR 0013 says why it is like this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import structlog

from operator_runner.config.watches.relevance import blocks_upgrade
from operator_runner.core.errors import ApiError, Forbidden
from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.kube.api import Api
from operator_runner.kube.operator_condition import Condition, OperatorCondition

_TYPE = "Upgradeable"
_LOOK_AGAIN = 300.0
"""Seconds until the condition is looked at again: somebody else may have removed it."""
_FIRST_RETRY, _LAST_RETRY = 1.0, 60.0
"""Seconds; OLM makes the object and its Role while the operator starts."""
_PATIENCE = 10.0
"""Seconds that a run waits until OLM has been told of it."""
_NAMED = 3
"""Resources that a message names."""

_log = structlog.get_logger(__name__)


def upgradeable_condition(busy: Sequence[ObjectRef]) -> Condition:
    """Return what OLM is told while the runs of `busy` must not be broken. Pure."""
    if not busy:
        return Condition(
            _TYPE, "True", "OperatorUpgradeable", "The operator is currently upgradeable"
        )
    names = ", ".join(str(ref) for ref in busy[:_NAMED])
    more = f" and {len(busy) - _NAMED} more" if len(busy) > _NAMED else ""
    message = f"The operator is currently busy with runs that must not be broken: {names}{more}"
    return Condition(_TYPE, "False", "OperatorBusy", message)


class Upgrades:
    """Holds upgrades off while critical runs are under way."""

    def __init__(self, condition: OperatorCondition | None) -> None:
        """None: OLM did not install this operator, and nothing is done."""
        self._condition = condition
        # In the order in which they began.
        self._busy: dict[ObjectRef, None] = {}
        self._changed = asyncio.Event()
        self._telling = asyncio.Lock()
        self._told: Condition | None = None
        self._complaint = ""

    @classmethod
    def of(cls, api: Api, namespace: str, name: str) -> Upgrades:
        """Report to the OperatorCondition `name`, if any, in the operator's own namespace."""
        return cls(OperatorCondition(api, namespace, name) if name else None)

    @asynccontextmanager
    async def guard(self, body: Json, watch: Watch) -> AsyncIterator[None]:
        """Hold upgrades off inside the block, if the watch wants that for this resource.

        OLM knows it before the block begins. Where it cannot be told, that is logged and the
        block begins all the same: an operator that cannot reach OLM has still work to do.
        """
        if self._condition is None or not blocks_upgrade(body, watch):
            yield
            return
        ref = ObjectRef.of(body)
        self._busy[ref] = None
        try:
            if not await self._tell():
                _log.warning("The run begins though an upgrade may break it: OLM was not told")
            yield
        finally:
            del self._busy[ref]
            self._changed.set()

    async def run(self) -> None:
        """Keep the condition as it is to be, without end. API errors are logged and retried."""
        retry = _FIRST_RETRY
        while True:
            self._changed.clear()
            if self._condition is None or await self._tell():
                wait, retry = _LOOK_AGAIN, _FIRST_RETRY
            else:
                wait, retry = retry, min(retry * 2, _LAST_RETRY)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def settle(self) -> None:
        """After the last run: take back that the operator is busy, if OLM was told so."""
        if self._told is not None and self._told != upgradeable_condition(()):
            await self._tell()

    async def _tell(self) -> bool:
        """Tell OLM how things are; return whether that succeeded."""
        assert self._condition is not None
        try:
            # One after the other, and each as things are when its turn comes.
            async with asyncio.timeout(_PATIENCE), self._telling:
                condition = upgradeable_condition(tuple(self._busy))
                await self._condition.set(condition)
        except (ApiError, TimeoutError) as error:
            self._complain(error)
            return False
        if condition != self._told:
            _log.info(
                "Told OLM whether the operator may be upgraded",
                upgradeable=condition.status,
                reason=condition.message,
            )
        self._told, self._complaint = condition, ""
        return True

    def _complain(self, error: Exception) -> None:
        """Log a failure once, until another one takes its place."""
        assert self._condition is not None
        message = str(error) or f"no answer within {_PATIENCE:g} s"
        if message == self._complaint:
            return
        self._complaint = message
        extra = {"operatorcondition": f"{self._condition.namespace}/{self._condition.name}"}
        if isinstance(error, Forbidden):
            extra["grant"] = "get and patch of this object; OLM does it for the accounts of the CSV"
        _log.warning(
            "Cannot tell OLM whether the operator may be upgraded", reason=message, **extra
        )
