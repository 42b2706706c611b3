"""The ticks of resources: what a run gets of them, and what its report writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from operator_runner.config.watches.schedules import timetable
from operator_runner.core.model import EventSpec, Json, Watch
from operator_runner.core.timetable import LAST_FIELD, NEXT_FIELD, TickRecord, Ticks, format_time
from operator_runner.reconcile.conditions import new_condition, put_condition, read_conditions
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import Observer, Phase, ResourceRun
from operator_runner.reconcile.results import ReconcileResult

_log = structlog.get_logger(__name__)

INVALID = "InvalidSchedule"
"""Reason of the Event and of the condition."""
_CONDITION = "Scheduled"
_PRUNED = (
    f"status.{LAST_FIELD} is not kept: add it to the schema of the CRD "
    "(type: string, format: date-time), or ticks run again after a restart"
)

_NO_TICKS = Ticks()


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The schedule of one resource as of a time.

    `last` is the last tick that a run has handled, `is_recorded` whether the status shows it.
    """

    ticks: Ticks = _NO_TICKS
    last: datetime | None = None
    is_recorded: bool = True
    error: str = ""

    def status_fields(self) -> Json:
        """Return the fields of the status; None removes one."""
        last = {} if self.is_recorded else {LAST_FIELD: _text(self.last)}
        return {**last, NEXT_FIELD: _text(self.ticks.pending)}

    def expression_value(self) -> Json:
        """Return what expressions of `status` see as `schedule`."""
        return {
            LAST_FIELD: _text(self.last),
            NEXT_FIELD: _text(self.ticks.pending),
            "error": self.error or None,
        }

    def put_condition(
        self, conditions: Sequence[Json], generation: int, now: datetime
    ) -> list[Json]:
        """Set the condition Scheduled of a schedule that is, or has been, invalid."""
        known = any(each.get("type") == _CONDITION for each in conditions)
        if not (self.error or known):
            return list(conditions)
        found = ("True", "ValidSchedule", "The schedule is valid")
        if self.error:
            found = ("False", INVALID, self.error)
        new = new_condition(_CONDITION, *found, generation)
        return put_condition(list(conditions), new, now)

    def is_new_error(self, conditions: Sequence[Json]) -> bool:
        """Return whether the conditions do not show the error yet."""
        return bool(self.error) and not any(
            each.get("type") == _CONDITION and each.get("message") == self.error
            for each in conditions
        )


@dataclass(slots=True)
class _ScheduleSlot:
    """What is kept of the schedule of a resource."""

    unrecorded: datetime | None = None
    """The last tick that ran, until the status shows it."""
    state: ScheduleState | None = None
    """As of the begin of the current run, then as of its end."""


class ScheduleObserver(Observer):
    """Gives runs their ticks, and writes the last and the next one into the status."""

    def __init__(self, watch: Watch, dependencies: Dependencies) -> None:
        """Take a watch with a `schedule`."""
        self._watch = watch
        self._deps = dependencies
        self._pruned = False

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`."""
        known = run.state.slot(_ScheduleSlot)
        known.state = None if run.is_cleanup else self._state(run)
        if known.state is None:
            return
        ticks = known.state.ticks
        run.schedule_time = _text(ticks.due)
        run.is_announced |= ticks.due is not None or ticks.missed is not None
        if ticks.missed is not None:
            # A tick that was missed is reported once: the status then announces a later one.
            run.fields = known.state.status_fields()

    @asynccontextmanager
    async def playing(self, run: ResourceRun) -> AsyncIterator[None]:
        """See `Observer`: report what is wrong with the schedule."""
        if (state := run.state.slot(_ScheduleSlot).state) is not None:
            if state.is_new_error(read_conditions(run.body)):
                _log.warning("Invalid schedule: the resource has no ticks", error=state.error)
                await self._emit(run, INVALID, state.error)
            if state.ticks.missed is not None:
                self._deps.metrics.tick_missed(self._watch.gvk)
                time = format_time(state.ticks.missed)
                _log.warning("Missed schedule", tick=time)
                note = f"Missed the tick of {time}: it is older than schedule.startingDeadline"
                await self._emit(run, "MissedSchedule", note)
        yield

    def reporting(self, run: ResourceRun) -> None:
        """See `Observer`."""
        outcome = run.outcome
        if outcome is None:
            return
        if run.is_deselection and outcome.successful and outcome.requeue_after is None:
            run.fields = {NEXT_FIELD: None}
            return
        known = run.state.slot(_ScheduleSlot)
        if outcome.successful and known.state is not None and known.state.ticks.due is not None:
            known.unrecorded = known.state.ticks.due
        known.state = self._state(run)
        run.fields = known.state.status_fields()
        run.values["schedule"] = known.state.expression_value()

    def conditions(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """See `Observer`."""
        state = run.state.slot(_ScheduleSlot).state
        if phase is not Phase.FINISHED or state is None:
            return conditions
        return state.put_condition(conditions, run.generation, run.now)

    async def ended(self, run: ResourceRun, result: ReconcileResult) -> None:
        """See `Observer`: note whether the status keeps the tick."""
        known = run.state.slot(_ScheduleSlot)
        if run.reported is None or known.unrecorded is None:
            return
        last = TickRecord.of(run.reported).last
        self._pruned = last is None or last < known.unrecorded
        if not self._pruned:
            known.unrecorded = None

    def is_due(self, run: ResourceRun) -> bool:
        """Return whether a tick asks for a run now."""
        return self._state(run).ticks.due is not None

    def _state(self, run: ResourceRun) -> ScheduleState:
        """Return the schedule of the resource, as of now."""
        record, unrecorded = TickRecord.of(run.body), run.state.slot(_ScheduleSlot).unrecorded
        last = max(filter(None, (record.last, unrecorded)), default=None)
        known = ScheduleState(
            last=last, is_recorded=last == record.last, error=_PRUNED if self._pruned else ""
        )
        try:
            found = timetable(run.body, self._watch)
        except ValueError as error:
            return replace(known, error=str(error))
        if found is None:
            return known
        shown = replace(record, last=last)
        return replace(known, ticks=found.ticks(shown, self._deps.clock()))

    async def _emit(self, run: ResourceRun, reason: str, note: str) -> None:
        await self._deps.cluster.emit(run.body, EventSpec(reason, note, warning=True))


def _text(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)
