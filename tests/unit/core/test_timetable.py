"""Which tick is due: deadline, suspension, restarts, and clocks that are set."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.core.timetable import Cron, TickRecord, Ticks, Timetable, parse_zone

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
HOURLY = Timetable(Cron.parse("0 * * * *", parse_zone("UTC")))
STRICT = replace(HOURLY, deadline=timedelta(minutes=1))
CREATED = TickRecord(NOON - timedelta(days=3) + SECOND)
DONE = replace(CREATED, last=NOON, announced=NOON + HOUR)


def test_no_tick_before_the_creation_is_due() -> None:
    """A new resource waits for its first tick."""
    record = TickRecord(NOON)
    assert HOURLY.ticks(record, NOON + SECOND) == Ticks(next=NOON + HOUR)
    assert HOURLY.ticks(record, NOON + HOUR) == Ticks(due=NOON + HOUR, next=NOON + 2 * HOUR)


def test_missed_ticks_collapse_into_the_latest() -> None:
    """After days without an operator one run follows, not one for each hour."""
    now = NOON + SECOND
    assert HOURLY.ticks(CREATED, now) == Ticks(due=NOON, next=NOON + HOUR)
    assert HOURLY.ticks(replace(CREATED, last=NOON), now) == Ticks(next=NOON + HOUR)


def test_a_tick_is_due_until_its_deadline() -> None:
    """Then it is missed, and reported if the status announced it."""
    due = Ticks(due=NOON + HOUR, next=NOON + 2 * HOUR)
    assert STRICT.ticks(DONE, NOON + HOUR + timedelta(minutes=1)) == due
    late = NOON + HOUR + timedelta(minutes=1) + SECOND
    assert STRICT.ticks(DONE, late) == Ticks(missed=NOON + HOUR, next=NOON + 2 * HOUR)
    announced = replace(DONE, announced=NOON + 2 * HOUR)
    assert STRICT.ticks(announced, late) == Ticks(next=NOON + 2 * HOUR)
    assert STRICT.ticks(CREATED, late) == Ticks(next=NOON + 2 * HOUR)


def test_a_pending_tick_is_announced_until_it_has_run() -> None:
    """The status of a failed run shows the tick that its retry gets."""
    ticks = HOURLY.ticks(DONE, NOON + HOUR + SECOND)
    assert ticks.pending == NOON + HOUR
    assert HOURLY.ticks(DONE, NOON + SECOND).pending == NOON + HOUR


def test_suspension_has_no_ticks_and_its_end_has_the_latest() -> None:
    """As a CronJob: of missed ticks one runs, unless it is older than the deadline."""
    suspended = replace(HOURLY, suspended=True)
    later = NOON + 5 * HOUR + timedelta(minutes=2)
    assert suspended.ticks(DONE, later) == Ticks()
    resumed = replace(DONE, announced=None)
    assert HOURLY.ticks(resumed, later).due == NOON + 5 * HOUR
    assert STRICT.ticks(resumed, later) == Ticks(next=NOON + 6 * HOUR)


@pytest.mark.parametrize("back", [SECOND, HOUR, timedelta(days=400)])
def test_a_clock_that_is_set_back_repeats_no_tick(back: timedelta) -> None:
    """The ticks of the hours that come again have run already."""
    assert HOURLY.ticks(DONE, NOON - back) == Ticks(next=NOON + HOUR)


def test_a_clock_that_is_set_forward_has_one_tick_due() -> None:
    """The hours in between were missed."""
    assert HOURLY.ticks(DONE, NOON + 30 * HOUR).due == NOON + 30 * HOUR


def test_a_new_schedule_never_repeats_a_tick_of_the_old_one() -> None:
    """Only ticks after the last one count, also after a change of the schedule."""
    quarters = replace(HOURLY, cron=Cron.parse("*/15 * * * *", parse_zone("UTC")))
    assert quarters.ticks(DONE, NOON + SECOND) == Ticks(next=NOON + timedelta(minutes=15))


@pytest.mark.parametrize(
    ("status", "last"),
    [
        ({"lastScheduleTime": "2026-05-05T12:00:00Z"}, NOON),
        ({"lastScheduleTime": "2026-05-05T14:00:00+02:00"}, NOON),
        ({"lastScheduleTime": "2026-05-05T12:00:00"}, NOON),
        ({"lastScheduleTime": "yesterday"}, None),
        ({"lastScheduleTime": 5}, None),
        ({"lastScheduleTime": {}}, None),
        ({"lastScheduleTime": "0001-01-01T00:00:00+14:00"}, None),
        ("text", None),
        (None, None),
    ],
)
def test_invalid_times_of_the_status_are_ignored(status: Any, last: datetime | None) -> None:
    """Others may have written the status."""
    body = {"metadata": {"creationTimestamp": "2026-05-05T10:00:00Z"}, "status": status}
    assert TickRecord.of(body) == TickRecord(NOON - 2 * HOUR, last)


def test_a_last_tick_at_the_end_of_time_has_no_next_one() -> None:
    """An invalid value in the status is ignored."""
    record = replace(CREATED, last=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert HOURLY.ticks(record, NOON) == Ticks()
