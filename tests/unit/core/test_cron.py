"""Ticks of cron schedules, across changes of the clocks in particular."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.timetable import Cron, parse_zone

BERLIN = "Europe/Berlin"
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
"""Days on which the clocks of Berlin change at 01:00 UTC."""


def cron(text: str, zone: str = "UTC") -> Cron:
    return Cron.parse(text, parse_zone(zone))


def ticks(schedule: Cron, start: datetime, count: int) -> list[str]:
    found: list[str] = []
    now: datetime | None = start
    while now is not None and len(found) < count:
        now = schedule.next(now)
        assert now is not None
        found.append(now.strftime("%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("30 2 * * *", SPRING - timedelta(days=1), ["28T01:30", "29T01:00", "30T00:30"]),
        ("0 3 * * *", SPRING - timedelta(days=1), ["28T02:00", "29T01:00", "30T01:00"]),
        ("30 2 * * *", AUTUMN - timedelta(days=1), ["24T00:30", "25T00:30", "26T01:30"]),
        ("0 * * * *", AUTUMN, ["25T01:00", "25T02:00", "25T03:00"]),
        ("*/30 2 * * *", AUTUMN - timedelta(hours=1), ["25T00:00", "25T00:30", "25T01:00"]),
    ],
)
def test_a_tick_runs_once_when_the_clocks_change(
    text: str, start: datetime, expected: list[str]
) -> None:
    """A daily tick runs once on each day, an hourly one each hour."""
    assert ticks(cron(text, BERLIN), start, 3) == expected


def test_a_tick_in_the_repeated_hour_is_not_given_twice() -> None:
    """In the second 02:15 of the day, today's tick of 02:30 is behind, and tomorrow's next."""
    schedule = cron("30 2 * * *", BERLIN)
    now = AUTUMN + timedelta(hours=1, minutes=15)
    assert schedule.previous(now) == AUTUMN + timedelta(minutes=30)
    assert schedule.next(now) == AUTUMN + timedelta(days=1, hours=1, minutes=30)


@given(
    st.sampled_from(["30 2 * * *", "0,30 2 * * *", "*/7 * * * *", "15 1-3 * * *", "5 4 * * sun"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]),
    st.integers(0, 15 * 366 * 24 * 3600),
)
def test_the_previous_and_the_next_tick_agree(text: str, zone: str, seconds: int) -> None:
    """No tick is between the two, in all time zones and on all days."""
    schedule = cron(text, zone)
    now = datetime(2011, 12, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    before, after = schedule.previous(now), schedule.next(now)
    assert before is not None
    assert after is not None
    assert before <= now < after
    assert schedule.next(before) == after
    assert schedule.previous(after - timedelta(microseconds=1)) == before
    assert schedule.previous(after) == after


def test_a_tick_is_at_its_time_and_not_after_it() -> None:
    """At the tick it is the previous one; a microsecond before it is the next one."""
    schedule, noon = cron("0 12 * * *"), datetime(2026, 1, 1, 12, tzinfo=UTC)
    early = noon - timedelta(microseconds=1)
    assert (schedule.previous(noon), schedule.next(early)) == (noon, noon)
    assert schedule.previous(early) == noon - timedelta(days=1)
    assert schedule.next(noon) == noon + timedelta(days=1)


@pytest.mark.parametrize("year", [1, 9999])
def test_times_beyond_the_calendar_have_no_tick(year: int) -> None:
    """A status may have any time."""
    schedule, edge = cron("0 0 1 1 *", BERLIN), datetime(year, 1, 1, tzinfo=UTC)
    assert schedule.next(edge) is None or year == 1
    assert schedule.previous(edge) is None or year == 9999


@given(st.text(max_size=300))
def test_any_text_is_a_schedule_or_a_value_error(text: str) -> None:
    """Users write it."""
    try:
        schedule = cron(text)
    except ValueError:
        return
    assert schedule.next(datetime(2026, 1, 1, tzinfo=UTC)) is not None


@given(st.text(st.sampled_from("0123456789*/,-#LWMONJAN@ \t"), max_size=40))
def test_the_message_for_a_schedule_has_a_position(text: str) -> None:
    """A schedule that never matches is the exception: no field alone is wrong."""
    try:
        cron(text)
    except ValueError as error:
        message = str(error)
    else:
        return
    assert "position" in message or "never matches" in message
