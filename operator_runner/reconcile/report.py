"""Tells everybody how a run went: conditions, a Kubernetes Event and one log line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import structlog

from operator_runner.core.durations import format_duration
from operator_runner.core.model import (
    Cause,
    EventSpec,
    Json,
    ObjectRef,
    RunOutcome,
    Trigger,
    Watch,
    describe,
    uid_of,
)
from operator_runner.kube.readiness import is_change
from operator_runner.reconcile import conditions, kstatus, reserved_fields
from operator_runner.reconcile.ports import Cluster
from operator_runner.reconcile.reserved_fields import ReservedField
from operator_runner.reconcile.status import Change, StatusWriter, generation_of, read_conditions

_log = structlog.get_logger(__name__)
_EVENT_BYTES = 300
"""Of a failure's message in an Event, whose note of 1,024 has its task, place and cause too."""

Verdict: TypeAlias = Callable[[Sequence[Json], int, datetime], list[Json]]
"""Adds the conditions of kstatus, given the others, the generation and the time."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run that is told of: of which resource, as it was before, why, and since when."""

    ref: ObjectRef
    before: Json
    causes: Sequence[Cause]
    began: datetime

    @property
    def seconds(self) -> float:
        """How long it has taken until now."""
        return round((datetime.now(UTC) - self.began).total_seconds(), 3)

    def event(self, reason: str, note: str, *, warning: bool = False) -> EventSpec:
        """Make the Event of the run's end."""
        return EventSpec(
            reason, note, warning, cause=_why(self.causes), duration_seconds=self.seconds
        )


class Reporter:
    """Reports the runs of one watch. Every method raises ApiError."""

    def __init__(self, watch: Watch, cluster: Cluster) -> None:
        """Take the watch, whose manageStatus decides about conditions."""
        self._manage_status = watch.manage_status
        self._kstatus = watch.kstatus
        self._cluster = cluster
        self._status = StatusWriter(cluster)

    async def start(self, ref: ObjectRef, body: Json) -> Json | None:
        """Say that a run begins; return the resource as it is then, None if it is gone."""
        if not self._manage_status:
            return body
        now = datetime.now(UTC)
        generation = generation_of(body)

        def change(old: Sequence[Json]) -> list[Json]:
            new = conditions.started(old, now)
            return kstatus.progressing(new, generation, now) if self._kstatus else new

        # What is observed is told when it has been acted on.
        return await self._status.write(ref, uid_of(body), change, body)

    async def interrupted(self, ref: ObjectRef, body: Json, why: str) -> None:
        """Say that a run was ended and no other follows it, for this reason."""
        if self._manage_status:
            now = datetime.now(UTC)
            await self._status.write(
                ref, uid_of(body), lambda old: conditions.interrupted(old, why, now), body
            )

    async def success(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        """Say that the play succeeded; return the resource as it is then, None if gone.

        `current` is the resource as it is now, None if it has to be read.
        """
        assert outcome.stats is not None
        stats, asked = outcome.stats, outcome.requeue_after
        told: dict[str, Any] = {"ok": stats.ok, "changed": stats.changed, "skipped": stats.skipped}
        note = f"Reconciled: {stats.ok} tasks ok, {stats.changed} changed"
        if asked is not None:
            told["requeue_after"] = format_duration(asked)
            note = f"{note}; {conditions.waiting_text(asked)}"
        _log.info("Reconciled", **told, seconds=run.seconds)
        after = await self._put_conditions(run, outcome, current)
        settled = conditions.is_successful if asked is None else conditions.is_waiting
        was_so = settled(read_conditions(run.before))
        if after is not None and (stats.changed or not was_so):
            await self._cluster.emit(after, run.event("Successful", note))
        return after

    async def failure(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        """Say which task failed and why; see `success`."""
        first = outcome.failures[0]
        text = conditions.failure_text(outcome.failures, _EVENT_BYTES)
        told = {"task": first.task, "path": first.path, "reason": first.message}
        _log.error("Reconciliation failed", **told, seconds=run.seconds)
        after = await self._put_conditions(run, outcome, current)
        await self._cluster.emit(after or run.before, run.event("Failed", text, warning=True))
        return after

    async def error(self, run: RunContext, message: str) -> None:
        """Say why the play could not be run at all."""
        _log.error("Reconciliation failed", reason=message)
        await self.failed(run, message, kstatus.stalled)

    async def failed(
        self, run: RunContext, message: str, verdict: Verdict = kstatus.failing
    ) -> None:
        """Say on the resource alone why it could not be reconciled.

        The Event is written even where the status cannot be.
        """
        now = datetime.now(UTC)
        try:
            if self._manage_status:
                await self._write(
                    run,
                    lambda old: conditions.failed(old, message, now),
                    lambda new, generation: verdict(new, generation, now),
                    run.before,
                )
        finally:
            await self._cluster.emit(run.before, run.event("Failed", message, warning=True))

    async def dropped(self, body: Json, fields: Sequence[ReservedField]) -> None:
        """Say which fields of the spec the role does not get, and why."""
        paths, cure = reserved_fields.paths(fields), reserved_fields.cure(fields)
        _log.warning("Fields of the resource are not passed to the role", fields=paths, cure=cure)
        note = reserved_fields.note(fields)
        await self._cluster.emit(body, EventSpec("ReservedFieldNames", note, warning=True))

    async def loop(self, ref: ObjectRef, echoes: Sequence[Cause]) -> None:
        """Say what a resource that keeps triggering itself is woken by."""
        body = await self._cluster.get(ref)
        if body is not None:
            note = loop_text(echoes)
            await self._cluster.emit(body, EventSpec("ReconcileLoop", note, warning=True))

    async def _put_conditions(
        self, run: RunContext, outcome: RunOutcome, current: Json | None
    ) -> Json | None:
        if not self._manage_status:
            found = current or await self._cluster.get(run.ref)
            return found if found is not None and uid_of(found) == uid_of(run.before) else None
        now = outcome.finished or datetime.now(UTC)
        if not outcome.successful:
            verdict = kstatus.failing
        else:
            verdict = kstatus.ready if outcome.requeue_after is None else kstatus.waiting
        return await self._write(
            run,
            lambda old: conditions.finished(old, outcome, now),
            lambda new, generation: verdict(new, generation, now),
            current,
        )

    async def _write(
        self,
        run: RunContext,
        change: Change,
        verdict: Callable[[Sequence[Json], int], list[Json]],
        current: Json | None,
    ) -> Json | None:
        """Write the contract's conditions and, where they are wanted, kstatus's beside them."""
        uid = uid_of(run.before)
        if not self._kstatus:
            return await self._status.write(run.ref, uid, change, current)
        generation = generation_of(run.before)
        return await self._status.write(
            run.ref, uid, lambda old: verdict(change(old), generation), current, generation
        )


def _why(causes: Sequence[Cause]) -> str:
    """Describe causes so that equal runs read alike: Events that do are counted up as one."""
    return describe(
        replace(cause, detail="") if cause.trigger is Trigger.RETRY else cause for cause in causes
    )


def loop_text(echoes: Sequence[Cause]) -> str:
    """Say which objects and fields are written again and again, and what to do about it."""
    if not echoes:
        return (
            "Slowed down: the annotation reconcile-period asks for runs in quick succession; "
            "name a period of at least 10s"
        )
    changes = "; ".join(dict.fromkeys(cause.detail for cause in echoes))
    if all(is_change(cause.detail) for cause in echoes):
        cure = "the role's own writes change the readiness: write only what differs"
    elif any(cause.trigger is Trigger.DEPENDENT for cause in echoes):
        cure = (
            "another writer undoes what the role writes: let one of the two leave the field alone"
        )
    else:
        cure = "the role edits the very resource it is run for: write results to the status instead"
    return f"Slowed down, for each run leads to the next one: {changes}; {cure}"
