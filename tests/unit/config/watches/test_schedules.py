"""The timetable of a resource: literals of the file, and expressions over the resource."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.config.watches import load
from operator_runner.config.watches.schedules import timetable
from operator_runner.core.model import Json, Watch
from operator_runner.core.timetable import Timetable

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def watch_of(project: Path, schedule: str) -> Watch:
    path = project / "watches.yaml"
    path.write_text(
        f"- {{group: a.example.com, version: v1, kind: A, role: web, schedule: {schedule}}}\n"
    )
    return load(path, {}).watches[0]


def resource(**spec: Any) -> Json:
    return {"metadata": {"name": "a"}, "spec": spec}


def read(project: Path, schedule: str, **spec: Any) -> Timetable:
    found = timetable(resource(**spec), watch_of(project, schedule))
    assert found is not None
    return found


def test_literals_apply_to_every_resource(project: Path) -> None:
    """A schedule, a zone, a duration and a boolean of the file need no field."""
    text = '{cron: "0 4 * * *", timeZone: Europe/Berlin, startingDeadline: 90s, suspend: true}'
    found = read(project, text)
    assert found.cron.next(NOON) == datetime(2026, 7, 2, 2, tzinfo=UTC)
    assert found.deadline == timedelta(seconds=90)
    assert found.suspended


def test_a_name_is_a_schedule(project: Path) -> None:
    """`@daily` as in a CronJob."""
    assert read(project, '{cron: "@daily"}').cron.next(NOON) == datetime(2026, 7, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"), [(60, 60.0), (1.5, 1.5), ("1m", 60.0), (None, None), ("", None)]
)
def test_expressions_are_evaluated_over_the_resource(
    project: Path, value: Any, seconds: float | None
) -> None:
    """Seconds are accepted as numbers, as in a CronJob."""
    text = "{cron: spec.cron, timeZone: spec.zone, startingDeadline: spec.late, suspend: spec.off}"
    found = read(project, text, cron="30 9 * * 1", zone="Asia/Tokyo", late=value, off=False)
    assert found.cron.next(NOON) == datetime(2026, 7, 6, 0, 30, tzinfo=UTC)
    assert found.deadline == (None if seconds is None else timedelta(seconds=seconds))
    assert not found.suspended


@pytest.mark.parametrize("value", [None, ""])
def test_a_resource_without_a_schedule_has_no_timetable(project: Path, value: Any) -> None:
    """The field may be optional."""
    assert timetable(resource(cron=value), watch_of(project, "{cron: spec.cron}")) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cron": "0 4 * *"}, r"schedule.cron \(spec.cron\): position 7: 4 fields instead of five"),
        ({"cron": "0 4 * * mo"}, r"position 8: invalid day-of-week 'mo'; write 0 to 7 or SUN"),
        ({"cron": 5}, r"schedule.cron \(spec.cron\): 5 is not text"),
        ({"cron": "@never"}, r"unknown name '@never'; write @yearly"),
        ({"cron": "0 0 31 2 *"}, r"position 4: no such day in any of these months"),
        ({"cron": "* " * 500}, r"longer than 256 characters"),
        ({"zone": "Mars"}, r"schedule.timeZone \(spec.zone\): unknown time zone 'Mars'"),
        ({"zone": "../etc/hosts"}, r"unknown time zone '../etc/hosts'"),
        ({"zone": ["UTC"]}, r"schedule.timeZone \(spec.zone\): \['UTC'\] is not text"),
        ({"late": True}, r"True is not a number of seconds or a duration"),
        ({"late": "1d"}, r"schedule.startingDeadline .*unknown unit"),
        ({"late": 0}, r"a deadline must be longer than 0s"),
        ({"late": 1e300}, r"seconds are too many"),
        ({"late": float("nan")}, r"startingDeadline"),
        ({"off": "x"}, r"schedule.suspend \(length\(spec.off.a\)\)"),
    ],
)
def test_an_invalid_value_names_key_expression_and_position(
    project: Path, spec: Json, message: str
) -> None:
    """For every invalid value the message names the place."""
    watch = watch_of(
        project,
        "{cron: spec.cron, timeZone: spec.zone, startingDeadline: spec.late, "
        'suspend: "length(spec.off.a)"}',
    )
    body = resource(**{"cron": "0 4 * * *", "off": {"a": ""}} | spec)
    with pytest.raises(ValueError, match=message):
        timetable(body, watch)


@pytest.mark.parametrize("value", [{"a": "x" * 1_000_000}, "x" * 1_000_000], ids=["map", "text"])
@pytest.mark.parametrize("field", ["cron", "zone", "late"])
def test_the_error_of_a_long_value_is_short(project: Path, field: str, value: Any) -> None:
    """It is the message of a condition, which etcd would not store beside such a value."""
    text = "{cron: spec.cron, timeZone: spec.zone, startingDeadline: spec.late}"

    with pytest.raises(ValueError, match=f"spec.{field}") as excinfo:
        read(project, text, **{"cron": "0 4 * * *", field: value})

    assert len(str(excinfo.value)) <= 1024
