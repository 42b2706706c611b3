"""Compute which tick of a cron schedule is due, was missed, and is next. Pure: time is an argument.

The only module that imports cronsim. Five fields or a name such as `@daily`, as in a CronJob. Times
are aware and in UTC. A tick in the hour that a change of the clocks leaves out is at the end of
that hour, and one in the hour that is repeated is in the first of the two.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from operator_runner.core.model import Json

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_VALUES = ("0 to 59", "0 to 23", "1 to 31", "1 to 12 or JAN to DEC", "0 to 7 or SUN to SAT")
_MAX_LENGTH = 256
_AROUND_SHIFT = timedelta(hours=3)
"""Longer than any change of the clocks but those that leave out a day."""
_SECOND = timedelta(seconds=1)
_OUT_OF_RANGE = (OverflowError, ValueError)
"""Raised by calculations beyond the years 1 to 9999."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule and its zone. Make one with `parse`."""

    text: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> Cron:
        """Read a schedule. Raises ValueError with the position and the field that is wrong."""
        if len(text) > _MAX_LENGTH:
            raise ValueError(f"longer than {_MAX_LENGTH} characters")
        fields = _NAMED.get(text.strip().lower(), text)
        if fields.startswith("@"):
            raise ValueError(f"position 0: unknown name {text!r}; write {', '.join(_NAMED)}")
        _check(fields)
        cron = cls(fields, zone)
        if cron.next(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ValueError("it never matches a date")
        return cron

    def next(self, now: datetime) -> datetime | None:
        """Return the first tick after `now`, or None if it is more than fifty years away."""
        try:
            later = (tick for tick in self._ticks(now - self._margin(now)) if tick > now)
            return next(later, None)
        except _OUT_OF_RANGE:
            return None

    def previous(self, now: datetime) -> datetime | None:
        """Return the last tick at or before `now`, or None if it is more than fifty years away."""
        try:
            # In reverse, cronsim starts before the time that it is given.
            start = now.replace(microsecond=0) + self._margin(now) + _SECOND
            earlier = (tick for tick in self._ticks(start, reverse=True) if tick <= now)
            return next(earlier, None)
        except _OUT_OF_RANGE:
            return None

    def _ticks(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        for tick in CronSim(self.text, start.astimezone(self.zone), reverse=reverse):
            yield tick.astimezone(UTC)

    def _margin(self, now: datetime) -> timedelta:
        """Return how far from `now` to start: cronsim counts the local time, which may repeat."""
        around = (now - _AROUND_SHIFT, now, now + _AROUND_SHIFT)
        offsets = {time.astimezone(self.zone).utcoffset() for time in around}
        return _AROUND_SHIFT if len(offsets) > 1 else timedelta(0)


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone, such as Europe/Berlin. Raises ValueError with the nearest name."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        short = name[:_MAX_LENGTH]
        near = difflib.get_close_matches(short, zoneinfo.available_timezones(), n=1)
        hint = f"did you mean {near[0]}?" if near else "write one such as Europe/Berlin or UTC"
        raise ValueError(f"unknown time zone {short!r}; {hint}") from None


def format_time(time: datetime) -> str:
    """Write a time as Kubernetes does: `2026-03-29T02:00:00Z`."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check(text: str) -> None:
    words = list(re.finditer(r"\S+", text))
    if len(words) != len(_FIELDS):
        raise ValueError(
            f"position {len(text.rstrip())}: {len(words)} fields instead of five: "
            f"{' '.join(_FIELDS)}"
        )
    for index, word in enumerate(words):
        if reason := _fault(["*"] * index + [word[0]] + ["*"] * (len(_FIELDS) - index - 1)):
            raise ValueError(
                f"position {word.start()}: invalid {_FIELDS[index]} {word[0]!r}; "
                f"write {_VALUES[index]}, with * , - and /"
            ) from reason
    if _fault([word[0] for word in words]):
        raise ValueError(f"position {words[2].start()}: no such day in any of these months")


def _fault(fields: list[str]) -> Exception | None:
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as error:
        return error
    return None


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
