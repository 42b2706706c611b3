"""Which resources the clock wakes, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.controller.sources.schedule import Schedules
from operator_runner.core.model import (
    GVK,
    Cause,
    Json,
    ObjectRef,
    RunContent,
    Schedule,
    Trigger,
    Watch,
)
from operator_runner.core.timetable import format_time

FOO = GVK("example.com", "v1", "Foo")
REF = ObjectRef(FOO, "default", "a")
CONTENT = RunContent(role=Path("/roles/foo"))
WATCH = Watch(
    FOO,
    CONTENT,
    schedule=Schedule("spec.cron", starting_deadline="spec.deadline", suspend="spec.suspend"),
)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def resource(*, last: datetime | None = NOON, generation: int = 1, **spec: Any) -> Json:
    status = {} if last is None else {"lastScheduleTime": format_time(last)}
    metadata = {"name": "a", "namespace": "default", "uid": "u", "generation": generation}
    metadata["creationTimestamp"] = format_time(NOON - HOUR / 2)
    return {"metadata": metadata, "spec": {"cron": "0 * * * *"} | spec, "status": status}


class Clock:
    """Schedules with a clock that the test sets, and the details of the causes so far."""

    def __init__(self, watch: Watch = WATCH) -> None:
        self.now = NOON + timedelta(minutes=1)
        self.causes: list[str] = []
        self.schedules = Schedules(
            [watch, Watch(GVK("", "v1", "Bar"), CONTENT)],
            self.enqueue,
            lambda: self.now,
        )

    def enqueue(self, ref: ObjectRef, cause: Cause) -> None:
        assert (ref, cause.trigger) == (REF, Trigger.SCHEDULE)
        self.causes.append(cause.detail)

    def at(self, now: datetime) -> list[str]:
        """Set the clock, and return the keys that the check adds."""
        self.now, before = now, len(self.causes)
        self.schedules.check_due()
        return self.causes[before:]


def test_a_tick_enqueues_its_resource_once() -> None:
    """Also if the resource changes before the run has recorded the tick."""
    clock = Clock()
    clock.schedules.on_change(REF, resource())
    assert clock.at(NOON + HOUR - timedelta(seconds=1)) == []
    assert clock.at(NOON + HOUR) == ["tick 2026-05-05T13:00:00Z"]
    clock.schedules.on_change(REF, resource(generation=2))
    assert clock.at(NOON + HOUR + timedelta(seconds=40)) == []
    clock.schedules.on_change(REF, resource(last=NOON + HOUR, generation=2))
    assert clock.at(NOON + 2 * HOUR) == ["tick 2026-05-05T14:00:00Z"]


def test_a_tick_that_is_due_at_the_start_is_enqueued_with_the_resource() -> None:
    """So that the run at the start has both causes."""
    clock = Clock()
    clock.schedules.on_change(REF, resource(last=NOON - 7 * HOUR))
    assert clock.causes == ["tick 2026-05-05T12:00:00Z"]


def test_a_missed_tick_enqueues_the_resource() -> None:
    """Once, and only if the status announced it."""
    clock = Clock()
    body = resource(last=NOON - 7 * HOUR, deadline=30)
    clock.schedules.on_change(REF, body)
    assert clock.causes == []
    body["status"]["nextScheduleTime"] = format_time(NOON - HOUR)
    clock.schedules.on_change(REF, body)
    clock.schedules.on_change(REF, body)
    assert clock.causes == ["missed tick 2026-05-05T12:00:00Z"]


def test_deleted_and_unselected_resources_have_no_ticks() -> None:
    """Neither has a resource that waits for its clean-up."""
    clock = Clock()
    clock.schedules.on_change(REF, resource())
    clock.schedules.on_change(REF, None)
    deleting = resource()
    deleting["metadata"]["deletionTimestamp"] = format_time(NOON)
    clock.schedules.on_change(REF, deleting)
    clock.schedules.on_change(ObjectRef(GVK("", "v1", "Bar"), "", "b"), resource())
    other = Clock(replace(WATCH, when="`false`"))
    other.schedules.on_change(REF, resource(last=None))
    assert clock.at(NOON + HOUR) == other.at(NOON + HOUR) == []


def test_a_resumed_resource_is_enqueued() -> None:
    """Its latest tick is due then."""
    clock = Clock()
    clock.schedules.on_change(REF, resource(suspend=True))
    assert clock.at(NOON + 3 * HOUR) == []
    clock.schedules.on_change(REF, resource(generation=2))
    assert clock.causes == ["tick 2026-05-05T15:00:00Z"]


def test_an_invalid_schedule_affects_no_other_resource() -> None:
    """It has no ticks until it is corrected."""
    clock = Clock()
    clock.schedules.on_change(REF, resource(cron="0 99 * * *"))
    assert clock.at(NOON + HOUR) == []
    clock.schedules.on_change(REF, resource(generation=2))
    assert clock.causes == ["tick 2026-05-05T13:00:00Z"]


def test_a_schedule_changed_outside_the_spec_enqueues_the_resource() -> None:
    """It may be from an annotation; the status is to show the next tick."""
    clock = Clock()
    clock.schedules.on_change(REF, resource())
    clock.schedules.on_change(REF, resource(cron="30 * * * *"))
    assert clock.causes == ["schedule changed"]


def test_a_clock_that_is_set_back_and_forth() -> None:
    """No tick is lost: a tick that has not run is enqueued when its time comes again."""
    clock = Clock()
    clock.schedules.on_change(REF, resource())
    assert clock.at(NOON + 9 * HOUR) == ["tick 2026-05-05T21:00:00Z"]
    assert clock.at(NOON + timedelta(minutes=5)) == []
    assert clock.at(NOON + HOUR) == ["tick 2026-05-05T13:00:00Z"]
    assert clock.at(NOON + 9 * HOUR) == ["tick 2026-05-05T21:00:00Z"]


def test_a_last_tick_that_is_set_back_runs_again() -> None:
    """A user may edit the status."""
    clock = Clock()
    clock.schedules.on_change(REF, resource(last=NOON - HOUR))
    clock.schedules.on_change(REF, resource(last=NOON))
    clock.schedules.on_change(REF, resource(last=NOON - HOUR))
    assert clock.causes == ["tick 2026-05-05T12:00:00Z"] * 2


def test_the_clock_is_checked_every_half_minute() -> None:
    """A clock that was set is noticed; a near tick is not slept over."""
    clock = Clock()
    assert clock.schedules.check_due() == 30
    clock.schedules.on_change(REF, resource())
    assert clock.schedules.check_due() == 30
    clock.now = NOON + HOUR - timedelta(seconds=4)
    assert clock.schedules.check_due() == 4


async def test_a_change_wakes_the_loop() -> None:
    """A schedule with an earlier tick does not wait for the end of the sleep."""
    clock = Clock()
    clock.schedules.on_change(REF, resource())
    task = asyncio.create_task(clock.schedules.run())
    await asyncio.sleep(0)
    clock.now = NOON + HOUR
    clock.schedules.on_change(REF, resource(last=NOON + HOUR, generation=2))
    clock.now = NOON + 2 * HOUR
    clock.schedules.on_change(ObjectRef(FOO, "default", "b"), None)
    clock.schedules.on_change(REF, resource(last=NOON + HOUR, generation=3))
    await asyncio.sleep(0)
    assert clock.causes == ["tick 2026-05-05T14:00:00Z"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
