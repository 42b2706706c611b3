"""Compute which tick of a schedule is due, was missed, and is next. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from operator_runner.core.cron import Cron
from operator_runner.core.model import Json

LAST_FIELD, NEXT_FIELD = "lastScheduleTime", "nextScheduleTime"
"""Fields of the status, named as in a CronJob."""


@dataclass(frozen=True, slots=True)
class TickRecord:
    """Ticks in the status of a resource.

    `last` is the last tick that a run has handled, `announced` the one that was next when its
    status was written.
    """

    created: datetime
    last: datetime | None = None
    announced: datetime | None = None

    @classmethod
    def of(cls, body: Json) -> TickRecord:
        """Read the record; times that are missing or invalid are None."""
        status = body.get("status")
        fields = status if isinstance(status, dict) else {}
        created = _time(body["metadata"].get("creationTimestamp"))
        return cls(
            created or datetime.fromtimestamp(0, UTC),
            _time(fields.get(LAST_FIELD)),
            _time(fields.get(NEXT_FIELD)),
        )


@dataclass(frozen=True, slots=True)
class Ticks:
    """The ticks of one resource, as of a time.

    A run now is to handle `due`. `missed` is a tick that was announced and is older than the
    deadline. `next` is in the future.
    """

    due: datetime | None = None
    missed: datetime | None = None
    next: datetime | None = None

    @property
    def pending(self) -> datetime | None:
        """The tick that the next run with a tick handles."""
        return self.due or self.next


@dataclass(frozen=True, slots=True)
class Timetable:
    """The schedule of one resource; `deadline` is the age at which a tick is no longer run."""

    cron: Cron
    deadline: timedelta | None = None
    suspended: bool = False

    def ticks(self, record: TickRecord, now: datetime) -> Ticks:
        """Return the ticks as of `now`. A tick at or before the last one is never due again."""
        if self.suspended:
            return Ticks()
        last = record.last or record.created
        latest = self.cron.previous(now)
        following = self.cron.next(max(now, last))
        if latest is None or latest <= last:
            return Ticks(next=following)
        if self.deadline is None or now - latest <= self.deadline:
            return Ticks(due=latest, next=following)
        was_announced = record.announced is not None and record.announced <= latest
        return Ticks(missed=latest if was_announced else None, next=following)


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
