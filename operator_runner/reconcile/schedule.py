"""The ticks of the resources of one watch: what a run gets of them, and what its report writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from operator_runner.core.model import Json, ObjectRef, Watch
from operator_runner.core.timetable import (
    LAST_FIELD,
    NEXT_FIELD,
    TickRecord,
    Ticks,
    Timetable,
    format_time,
)
from operator_runner.reconcile.conditions import new_condition, put_condition

INVALID = "InvalidSchedule"
"""Reason of the Event and of the condition."""
_CONDITION = "Scheduled"
_PRUNED = (
    f"status.{LAST_FIELD} is not kept: add it to the schema of the CRD "
    "(type: string, format: date-time), or ticks run again after a restart"
)

TimetableReader: TypeAlias = Callable[[Json, Watch], Timetable | None]
"""Returns the timetable of a resource, None without one; raises ValueError for an invalid one."""


_NO_TICKS = Ticks()


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The schedule of one resource as of a time.

    `declared` is whether its watch has one, `last` the last tick that a run has handled.
    `is_recorded` is whether the status shows it.
    """

    declared: bool
    ticks: Ticks = _NO_TICKS
    last: datetime | None = None
    is_recorded: bool = True
    error: str = ""

    @property
    def time(self) -> str | None:
        """The tick of a run that starts now, as text; None if none is due."""
        return _text(self.ticks.due)

    def status_fields(self) -> Json:
        """Return the fields of the status; None removes one."""
        if not self.declared:
            return {}
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
        if not self.declared or not (self.error or known):
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


NO_SCHEDULE = ScheduleState(declared=False)
"""The state of a resource whose watch has no schedule, and of one that is being deleted."""


class ScheduleTracker:
    """Computes the ticks of resources; remembers those that ran and could not be recorded."""

    def __init__(self, watch: Watch, read: TimetableReader, clock: Callable[[], datetime]) -> None:
        """`clock` returns the time of the wall clock."""
        self._watch = watch
        self._read = read
        self._clock = clock
        self._unrecorded: dict[ObjectRef, datetime] = {}
        self._pruned = False

    def state(self, ref: ObjectRef, body: Json) -> ScheduleState:
        """Return the state of a resource, as of now."""
        if self._watch.schedule is None:
            return NO_SCHEDULE
        record = TickRecord.of(body)
        last = max(filter(None, (record.last, self._unrecorded.get(ref))), default=None)
        known = ScheduleState(
            declared=True,
            last=last,
            is_recorded=last == record.last,
            error=_PRUNED if self._pruned else "",
        )
        try:
            timetable = self._read(body, self._watch)
        except ValueError as error:
            return replace(known, error=str(error))
        if timetable is None:
            return known
        shown = replace(record, last=last)
        return replace(known, ticks=timetable.ticks(shown, self._clock()))

    def succeeded(self, ref: ObjectRef, tick: datetime | None) -> None:
        """Note that a run has handled a tick, before this is recorded in the status."""
        if tick is not None:
            self._unrecorded[ref] = tick

    def recorded(self, ref: ObjectRef, body: Json) -> None:
        """Note the resource as it was after the report of a run."""
        ran, last = self._unrecorded.get(ref), TickRecord.of(body).last
        if ran is None:
            return
        self._pruned = last is None or last < ran
        if not self._pruned:
            del self._unrecorded[ref]

    def forget(self, ref: ObjectRef) -> None:
        """Drop the state of a deleted resource."""
        self._unrecorded.pop(ref, None)


def _text(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)
