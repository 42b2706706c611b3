"""Go durations."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.durations import format_duration, parse_duration

SECOND = timedelta(seconds=1)
LONGEST = timedelta(microseconds=(2**63 - 1) // 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        ("-0", timedelta(0)),
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5m", 30 * SECOND),
        ("5.s", 5 * SECOND),
        ("1m1m", 120 * SECOND),
        ("300ms", SECOND * 0.3),
        ("3us", timedelta(microseconds=3)),
        ("3µs", timedelta(microseconds=3)),
        ("3μs", timedelta(microseconds=3)),
        ("2500ns", timedelta(microseconds=2)),
        ("1ns", timedelta(microseconds=1)),
        ("9223372036854775807ns", LONGEST),
        ("-9223372036854775808ns", -LONGEST),
    ],
)
def test_durations_are_read_as_in_go(text: str, expected: timedelta) -> None:
    """Units, fractions and signs; nonzero durations remain nonzero."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("--5s", 'time: invalid duration "--5s"'),
        ("ten", 'time: invalid duration "ten"'),
        ("10", 'time: missing unit in duration "10"'),
        ("1.5", 'time: missing unit in duration "1.5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1H", 'time: unknown unit "H" in duration "1H"'),
        ("1s ", 'time: unknown unit "s " in duration "1s "'),
        ("1h 5m", 'time: unknown unit "h " in duration "1h 5m"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
    ],
)
def test_errors_have_the_text_of_go(text: str, message: str) -> None:
    """Users find the same words as with ansible-operator."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(hours=10), "10h0m0s"),
        (timedelta(minutes=90), "1h30m0s"),
        (timedelta(seconds=61.5), "1m1.5s"),
        (timedelta(seconds=-1), "-1s"),
        (timedelta(milliseconds=1.5), "1.5ms"),
        (timedelta(microseconds=7), "7µs"),
    ],
)
def test_durations_are_written_as_in_go(value: timedelta, expected: str) -> None:
    """Hours, minutes and seconds, or one smaller unit."""
    assert format_duration(value) == expected


@given(st.timedeltas(min_value=-LONGEST, max_value=LONGEST))
def test_durations_survive_a_round_trip(value: timedelta) -> None:
    """Reading undoes writing."""
    assert parse_duration(format_duration(value)) == value


@given(st.text(alphabet="0123456789.+-hmsunµ d"))
def test_any_text_is_a_duration_or_an_error_of_go(text: str) -> None:
    """Only ValueError is raised, with the input in its text."""
    try:
        outcome = format_duration(parse_duration(text))
    except ValueError as error:
        outcome = str(error)

    assert re.fullmatch(r"time: .* duration \".*\"|-?([0-9.]+[hmµs]+)+", outcome)
