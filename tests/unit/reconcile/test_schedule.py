"""What a run gets of the schedule of its resource, and what its report writes."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.core.errors import Unavailable
from operator_runner.core.model import Cause, Json, Schedule, Trigger
from operator_runner.core.timetable import format_time
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import ASKING, FOO, PLAIN, REF, SPEC, Case, resource

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WATCH = replace(
    PLAIN,
    schedule=Schedule("spec.cron", starting_deadline="spec.deadline", suspend="spec.suspend"),
)
TICK = [Cause(Trigger.SCHEDULE, "tick")]


def scheduled(status: Json | None = None, **spec: Any) -> Json:
    body = resource(creationTimestamp=format_time(NOON - HOUR / 2))
    return body | {"spec": {"cron": "0 * * * *"} | spec, "status": status or {}}


class Clocked(Case):
    """A reconciler with a schedule, at noon and a minute."""

    def __init__(self, cluster: FakeCluster, *outcomes: Any) -> None:
        super().__init__(WATCH, cluster, *outcomes)
        self.clock = NOON + timedelta(minutes=1)
        self.missed = self.metrics.missed
        self.depend(clock=lambda: self.clock)

    async def run(self) -> str | None:
        """Reconcile once; return the tick that the run got."""
        await self.reconciler.reconcile(REF, TICK)
        found = self.executor.requests[-1].extra_vars.get("schedule_time")
        assert found is None or isinstance(found, str)
        return found

    async def shown(self) -> tuple[str | None, str | None]:
        body = await self.cluster.get(REF)
        assert body is not None
        status = body["status"]
        return status.get("lastScheduleTime"), status.get("nextScheduleTime")


async def test_a_run_gets_its_tick_and_records_it() -> None:
    """Whatever led to it; a later run gets none until the next tick."""
    case = Clocked(FakeCluster(scheduled()), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert case.executor.requests[-1].extra_vars["schedule_time"] == "2026-05-05T12:00:00Z"
    assert await case.shown() == ("2026-05-05T12:00:00Z", "2026-05-05T13:00:00Z")
    assert await case.run() is None
    case.clock += HOUR
    assert await case.run() == "2026-05-05T13:00:00Z"


async def test_the_times_are_written_with_the_conditions() -> None:
    """One patch: a reader never sees a success without its tick."""
    case = Clocked(FakeCluster(scheduled()), success())
    states = []
    original = case.cluster.patch_status

    async def patch(body: Json, status: Json) -> Json:
        states.append(copy.deepcopy(status))
        return await original(body, status)

    case.cluster.patch_status = patch  # type: ignore[method-assign]
    await case.run()
    assert ["lastScheduleTime" in state for state in states] == [False, True]
    written = {each["type"]: each["status"] for each in states[-1]["conditions"]}
    assert written["Successful"] == "True"


async def test_a_failed_run_keeps_its_tick() -> None:
    """Its retry gets the same time; the status goes on to announce it."""
    case = Clocked(FakeCluster(scheduled()), failure("a", "no"), success())
    assert await case.run() == "2026-05-05T12:00:00Z"
    assert await case.shown() == (None, "2026-05-05T12:00:00Z")
    case.clock += HOUR / 2
    assert await case.run() == "2026-05-05T12:00:00Z"
    assert await case.shown() == ("2026-05-05T12:00:00Z", "2026-05-05T13:00:00Z")


async def test_a_run_that_requeues_has_handled_its_tick() -> None:
    """It succeeded."""
    case = Clocked(FakeCluster(scheduled()), ASKING)
    await case.run()
    assert await case.run() is None
    assert await case.shown() == ("2026-05-05T12:00:00Z", "2026-05-05T13:00:00Z")


async def test_a_tick_that_could_not_be_recorded_is_not_repeated_by_this_process() -> None:
    """The run succeeded; its report is written with the next one."""
    case = Clocked(FakeCluster(scheduled()), success())
    refused: list[bool] = []

    def refuse() -> None:
        if case.executor.requests and not refused:
            refused.append(True)
            raise Unavailable("no answer")

    case.cluster.before_write = refuse
    with pytest.raises(Unavailable):
        await case.run()
    assert await case.shown() == (None, None)
    assert await case.run() is None
    assert await case.shown() == ("2026-05-05T12:00:00Z", "2026-05-05T13:00:00Z")


async def test_a_tick_beyond_its_deadline_is_reported_once() -> None:
    """As an Event and a metric; the run itself goes on without a time."""
    late = {"lastScheduleTime": "2026-05-05T10:00:00Z", "nextScheduleTime": "2026-05-05T11:00:00Z"}
    case = Clocked(FakeCluster(scheduled(late, deadline=30)), success())
    assert await case.run() is None
    assert await case.run() is None
    events = [event for event in case.cluster.events if event.reason == "MissedSchedule"]
    assert [event.note for event in events] == [
        "Missed the tick of 2026-05-05T12:00:00Z: it is older than schedule.startingDeadline"
    ]
    assert case.missed == [FOO]
    assert await case.shown() == ("2026-05-05T10:00:00Z", "2026-05-05T13:00:00Z")


async def test_a_missed_tick_is_in_the_status_before_the_run() -> None:
    """An operator that ends during the run does not report the tick again."""
    late = {"lastScheduleTime": "2026-05-05T10:00:00Z", "nextScheduleTime": "2026-05-05T11:00:00Z"}
    case = Clocked(FakeCluster(scheduled(late, deadline=30)), success())
    during: list[Json] = []
    case.executor.during = lambda: during.append(copy.deepcopy(case.cluster.objects[REF]["status"]))
    await case.run()
    assert during[0]["nextScheduleTime"] == "2026-05-05T13:00:00Z"


async def test_a_suspended_resource_has_no_next_tick() -> None:
    """It is reconciled on other events."""
    announced = {"nextScheduleTime": "2026-05-05T12:00:00Z"}
    case = Clocked(FakeCluster(scheduled(announced, suspend=True)), success())
    assert await case.run() is None
    assert await case.shown() == (None, None)


async def test_an_invalid_schedule_is_reported_and_the_resource_runs() -> None:
    """Condition and Event have the position; both once, until it is corrected."""
    case = Clocked(FakeCluster(scheduled(cron="0 99 * * *")), success())
    for _ in range(3):
        assert await case.run() is None
    found = (await case.conditions())["Scheduled"]
    error = (
        "schedule.cron (spec.cron): position 2: invalid hour '99'; write 0 to 23, with * , - and /"
    )
    assert (found["status"], found["reason"], found["message"]) == (
        *("False", "InvalidSchedule", error),
    )
    assert (await case.conditions())["Successful"]["status"] == "True"
    notes = [event.note for event in case.cluster.events if event.reason == "InvalidSchedule"]
    assert notes == [error]
    case.cluster.edit(REF, lambda body: body["spec"].update(cron="0 9 * * *"))
    await case.run()
    assert (await case.conditions())["Scheduled"]["status"] == "True"


async def test_a_valid_schedule_adds_no_condition() -> None:
    """Neither does its absence."""
    case = Clocked(FakeCluster(scheduled()), success())
    await case.run()
    case.cluster.edit(REF, lambda body: body["spec"].update(cron=None))
    await case.run()
    assert "Scheduled" not in await case.conditions()
    assert await case.shown() == ("2026-05-05T12:00:00Z", None)


async def test_a_schema_that_drops_the_last_tick_is_reported() -> None:
    """The tick would run again after each restart; this process does not repeat it."""
    case = Clocked(FakeCluster(scheduled()), success())
    original = case.cluster.patch_status

    async def patch(body: Json, status: Json) -> Json:
        kept = {key: value for key, value in status.items() if key == "conditions"}
        return await original(body, kept)

    case.cluster.patch_status = patch  # type: ignore[method-assign]
    assert await case.run() == "2026-05-05T12:00:00Z"
    assert await case.run() is None
    found = (await case.conditions())["Scheduled"]
    assert (
        "status.lastScheduleTime is not kept: add it to the schema of the CRD" in found["message"]
    )


async def test_a_clean_up_has_no_tick() -> None:
    """The resource is being deleted."""
    body = scheduled()
    body["metadata"] |= {"deletionTimestamp": format_time(NOON), "finalizers": ["example.com/f"]}
    case = Clocked(FakeCluster(body), success())
    await case.reconciler.reconcile(REF, TICK)
    assert not case.executor.requests


async def test_a_field_of_the_name_is_not_taken_for_a_tick() -> None:
    """`spec.scheduleTime` would be the variable otherwise."""
    case = Clocked(FakeCluster(scheduled(scheduleTime="always")), success())
    assert await case.run() == "2026-05-05T12:00:00Z"
    assert await case.run() is None
