"""The `schedule` key of an entry, and the timetable that it gives for a resource."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from operator_runner.config.watches import expressions
from operator_runner.config.watches.map_reader import MapReader
from operator_runner.core.durations import parse_duration
from operator_runner.core.model import Json, Schedule, Watch
from operator_runner.core.texts import truncated
from operator_runner.core.timetable import Cron, Timetable, parse_zone

_UTC = ZoneInfo("UTC")
_MAX_ERROR_BYTES = 1024


def read_schedule(fields: MapReader) -> Schedule | None:
    """Read the keys of `schedule`; problems are reported."""
    cron = _read(fields, "cron", _parse_cron, "a cron schedule", "0 4 * * * or spec.schedule")
    if not fields.text("cron"):
        fields.problem("cron", "cron must not be empty; add `cron:`, such as `cron: 0 4 * * *`")
    zone = _read(fields, "timeZone", parse_zone, "a time zone", "Europe/Berlin or spec.timeZone")
    deadline = _read(fields, "startingDeadline", _parse_deadline, "a duration", "60s")
    flags = {"true": "`true`", "false": None}
    text = fields.text("suspend")
    suspend = flags[text] if text in flags else _expression(fields, "suspend", "a boolean", "true")
    return None if cron is None else Schedule(cron, zone, deadline, suspend)


def timetable(body: Json, watch: Watch) -> Timetable | None:
    """Return the timetable of a resource; None if it has no cron schedule.

    Raises ValueError, with the key, the expression and the position, for one that is invalid.
    """
    schedule = watch.schedule
    if schedule is None:
        return None
    zone = _value(body, "timeZone", schedule.time_zone, _zone) or _UTC
    cron = _value(body, "cron", schedule.cron, lambda value: Cron.parse(_text(value), zone))
    deadline = _value(body, "startingDeadline", schedule.starting_deadline, _deadline)
    suspended = _value(body, "suspend", schedule.suspend, expressions.is_true)
    return None if cron is None else Timetable(cron, deadline, bool(suspended))


def _read(
    fields: MapReader, name: str, parse: Callable[[str], Any], what: str, example: str
) -> str | None:
    """Return the JMESPath of a key: its text, or a literal if `parse` accepts the text."""
    text = fields.text(name)
    if not text:
        return None
    try:
        parse(text)
    except ValueError as error:
        return _expression(fields, name, f"{what} ({error})", example)
    return f"'{text}'"


def _expression(fields: MapReader, name: str, what: str, example: str) -> str | None:
    text = fields.text(name)
    if not text:
        return None
    try:
        expressions.check(text)
    except ValueError as error:
        fields.problem(
            name, f"{text!r} is neither {what} nor JMESPath ({error}); write for example {example}"
        )
    return text


def _value(
    body: Json, key: str, expression: str | None, convert: Callable[[Any], Any]
) -> Any | None:
    """Return the converted value of an expression; None without one, or if it is empty."""
    if expression is None:
        return None
    try:
        value = expressions.evaluate(expression, body)
        return None if value is None or value == "" else convert(value)
    except ValueError as error:
        # The value may be as long as the resource.
        text = truncated(f"schedule.{key} ({expression}): {error}", _MAX_ERROR_BYTES)
        raise ValueError(text) from error


def _parse_cron(text: str) -> Cron:
    return Cron.parse(text, _UTC)


def _parse_deadline(text: str) -> timedelta:
    return _positive(parse_duration(text))


def _deadline(value: Any) -> timedelta:
    """Read seconds, as in a CronJob, or a duration."""
    if isinstance(value, str):
        return _parse_deadline(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number of seconds or a duration")  # noqa: TRY004
    try:
        return _positive(timedelta(seconds=value))
    except OverflowError:
        raise ValueError(f"{value!r} seconds are too many") from None


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("a deadline must be longer than 0s; omit it for none")
    return value


def _zone(value: Any) -> ZoneInfo:
    return parse_zone(_text(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004 as for any other value
    return value
