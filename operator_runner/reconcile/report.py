"""Tells everybody how a run went: conditions, a Kubernetes Event and one log line."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from operator_runner.model import Json, ObjectRef, RunOutcome, Watch
from operator_runner.reconcile import conditions
from operator_runner.reconcile.ports import Cluster, Notice
from operator_runner.reconcile.status import StatusWriter, read_conditions

_log = structlog.get_logger(__name__)


class Reporter:
    """Reports the runs of one watch. Every method raises ApiError."""

    def __init__(self, watch: Watch, cluster: Cluster) -> None:
        """Take the watch, whose manageStatus decides about conditions."""
        self._manage_status = watch.manage_status
        self._cluster = cluster
        self._status = StatusWriter(cluster)

    async def start(self, ref: ObjectRef, body: Json) -> Json:
        """Say that a run begins; return the resource as it is then."""
        if not self._manage_status:
            return body
        now = datetime.now(UTC)
        written = await self._status.write(ref, lambda old: conditions.started(old, now), body)
        return written or body

    async def interrupted(self, ref: ObjectRef, body: Json, why: str) -> None:
        """Say that a run was ended and no other follows it, for this reason."""
        if self._manage_status:
            now = datetime.now(UTC)
            await self._status.write(ref, lambda old: conditions.interrupted(old, why, now), body)

    async def success(
        self, ref: ObjectRef, before: Json, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        """Say that the play succeeded; return the resource as it is then, None if gone.

        `before` is the resource at the start of the run, `current` as it is now, None if it
        has to be read.
        """
        assert outcome.stats is not None
        stats = outcome.stats
        _log.info("Reconciled", ok=stats.ok, changed=stats.changed, skipped=stats.skipped)
        after = await self._put_conditions(ref, outcome, current)
        was_well = conditions.is_successful(read_conditions(before))
        if after is not None and (stats.changed or not was_well):
            note = f"Reconciled: {stats.ok} tasks ok, {stats.changed} changed"
            await self._cluster.emit(after, Notice("Successful", note))
        return after

    async def failure(
        self, ref: ObjectRef, before: Json, outcome: RunOutcome, current: Json | None
    ) -> None:
        """Say which task failed and why; see `success`."""
        first = outcome.failures[0]
        text = conditions.failure_text(outcome.failures)
        _log.error("Reconciliation failed", task=first.task, path=first.path, reason=first.message)
        after = await self._put_conditions(ref, outcome, current)
        await self._cluster.emit(after or before, Notice("Failed", text, warning=True))

    async def error(self, ref: ObjectRef, before: Json, message: str) -> None:
        """Say why the play could not be run at all."""
        _log.error("Reconciliation failed", reason=message)
        if self._manage_status:
            now = datetime.now(UTC)
            await self._status.write(ref, lambda old: conditions.failed(old, message, now), before)
        await self._cluster.emit(before, Notice("Failed", message, warning=True))

    async def _put_conditions(
        self, ref: ObjectRef, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        if not self._manage_status:
            return current or await self._cluster.get(ref)
        now = outcome.finished or datetime.now(UTC)
        return await self._status.write(
            ref, lambda old: conditions.finished(old, outcome, now), current
        )
