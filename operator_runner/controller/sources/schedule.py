"""Enqueue resources at the ticks of their schedules.

The reconcile decides which tick is due, by the wall clock; this only wakes it. The loop never
sleeps for long, so that a clock that was set is noticed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from operator_runner.config.watches.schedules import timetable
from operator_runner.config.watches.selection import is_selected
from operator_runner.core.model import Cause, Json, ObjectRef, Trigger, Watch, uid_of
from operator_runner.core.timetable import TickRecord, Timetable, format_time
from operator_runner.telemetry.runs.api import ScheduleEntry

_MAX_SLEEP_SECONDS = 30.0


@dataclass(slots=True)
class _ScheduledResource:
    """A resource: its timetable, or why it has none, and the last tick that was enqueued."""

    uid: str
    generation: int
    timetable: Timetable | str | None
    record: TickRecord
    enqueued: datetime | None = None
    wake: datetime | None = None


class Schedules:
    """Keeps the next tick of each resource."""

    def __init__(
        self,
        watches: Sequence[Watch],
        enqueue: Callable[[ObjectRef, Cause], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`clock` is the wall clock."""
        self._watches = {watch.gvk: watch for watch in watches if watch.schedule is not None}
        self._enqueue = enqueue
        self._clock = clock
        self._entries: dict[ObjectRef, _ScheduledResource] = {}
        self._timers: list[tuple[datetime, ObjectRef]] = []
        self._changed = asyncio.Event()
        self._latest = clock()

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Update the schedule of a resource; None for a deleted one."""
        watch = self._watches.get(ref.gvk)
        if watch is None:
            return
        old = self._entries.pop(ref, None)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return
        if not is_selected(body, watch):
            return
        new = self._entries[ref] = self._entry(body, watch)
        if old is not None and old.uid == new.uid:
            # Somebody who sets the last tick back wants it to run again.
            was_reset = old.record.last and (
                not new.record.last or new.record.last < old.record.last
            )
            new.enqueued = None if was_reset else old.enqueued
            if old.generation == new.generation and old.timetable != new.timetable:
                self._enqueue(ref, Cause(Trigger.SCHEDULE, "schedule changed"))
        self._check(ref, new, self._clock())
        self._changed.set()

    def entries(self) -> list[ScheduleEntry]:
        """Return the next tick of each resource with a schedule."""
        now = self._clock()
        found = []
        for ref, entry in self._entries.items():
            error = entry.timetable if isinstance(entry.timetable, str) else ""
            next_ = None
            if isinstance(entry.timetable, Timetable):
                next_ = entry.timetable.ticks(entry.record, now).next
            if entry.timetable is not None:
                found.append(ScheduleEntry(ref, next_, entry.record.last, error))
        return found

    async def run(self) -> None:
        """Enqueue resources at their ticks until cancelled."""
        while True:
            seconds = self.check_due()
            self._changed.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def check_due(self) -> float:
        """Enqueue what is due; return the seconds until the next check."""
        now = self._clock()
        if now < self._latest:
            # The clock was set back: other ticks may be next.
            for ref, entry in self._entries.items():
                self._check(ref, entry, now)
        self._latest = now
        while self._timers and self._timers[0][0] <= now:
            wake, ref = heapq.heappop(self._timers)
            found = self._entries.get(ref)
            if found is not None and found.wake == wake:
                self._check(ref, found, now)
        if not self._timers:
            return _MAX_SLEEP_SECONDS
        return min((self._timers[0][0] - now).total_seconds(), _MAX_SLEEP_SECONDS)

    def _entry(self, body: Json, watch: Watch) -> _ScheduledResource:
        found: Timetable | str | None
        try:
            found = timetable(body, watch)
        except ValueError as error:
            found = str(error)
        generation = body["metadata"].get("generation") or 0
        return _ScheduledResource(uid_of(body), generation, found, TickRecord.of(body))

    def _check(self, ref: ObjectRef, entry: _ScheduledResource, now: datetime) -> None:
        """Enqueue the resource if it has a tick that was not enqueued, and set its next timer."""
        if not isinstance(entry.timetable, Timetable):
            return
        ticks = entry.timetable.ticks(entry.record, now)
        if entry.enqueued is not None and entry.enqueued > now:
            entry.enqueued = None
        tick = ticks.due or ticks.missed
        if tick is not None and (entry.enqueued is None or tick > entry.enqueued):
            entry.enqueued = tick
            what = "tick" if ticks.due else "missed tick"
            self._enqueue(ref, Cause(Trigger.SCHEDULE, f"{what} {format_time(tick)}"))
        if ticks.next is not None and ticks.next != entry.wake:
            heapq.heappush(self._timers, (ticks.next, ref))
        entry.wake = ticks.next
