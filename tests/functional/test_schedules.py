"""Runs by the clock, through a real API server: missed ticks, restarts, replicas."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.functional.test_operator import KIND, echo
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

_SCHEDULE = """
  schedule:
    cron: spec.cron
    startingDeadline: spec.deadline
    suspend: spec.suspend
"""
# One ConfigMap for each run with a tick; such a run waits while the ConfigMap `hold` exists.
_TASKS = """
- name: Note the tick
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        generateName: tick-
        namespace: "{{ ansible_operator_meta.namespace }}"
        labels: {of: "{{ ansible_operator_meta.name }}"}
      data:
        time: "{{ schedule_time }}"
  when: schedule_time is defined
- name: Wait to go on
  kubernetes.core.k8s_info:
    kind: ConfigMap
    name: hold
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: hold
  until: not hold.resources
  retries: 600
  delay: 1
  when: schedule_time is defined
- name: Fail once
  ansible.builtin.fail:
    msg: the spec is broken
  when: broken | default(false)
"""
_YEARLY = "0 0 1 1 *"
_TICK = f"{datetime.now(UTC).year}-01-01T00:00:00Z"
_NEXT = f"{datetime.now(UTC).year + 1}-01-01T00:00:00Z"
_LONG_AGO = {"lastScheduleTime": "2019-01-01T00:00:00Z", "nextScheduleTime": "2020-01-01T00:00:00Z"}


def _prepare(project: Path) -> None:
    with (project / "watches.yaml").open("a") as watches:
        watches.write(_SCHEDULE)
    with (project / "roles/echo/tasks/main.yml").open("a") as tasks:
        tasks.write(_TASKS)


def _set_back(kubectl: Kubectl, name: str) -> None:
    """Give a resource the status of one that has missed the ticks of years."""
    patch = json.dumps({"status": _LONG_AGO})
    kubectl("patch", KIND, name, "--subresource=status", "--type=merge", f"--patch={patch}")


def _status(kubectl: Kubectl, name: str) -> Json:
    found = kubectl.get(KIND, name)
    assert found is not None
    return dict(found.get("status") or {})


def _times(kubectl: Kubectl, name: str) -> tuple[str | None, str | None]:
    status = _status(kubectl, name)
    return status.get("lastScheduleTime"), status.get("nextScheduleTime")


def _ticks(kubectl: Kubectl, name: str) -> list[str]:
    """Return the ticks that were passed to runs of a resource."""
    return [found["data"]["time"] for found in kubectl.list("configmap", f"of={name}")]


def _condition(kubectl: Kubectl, name: str, type_: str) -> Json:
    found = _status(kubectl, name).get("conditions") or []
    return next((each for each in found if each["type"] == type_), {})


def _wait_for_condition(kubectl: Kubectl, operator: Operator, name: str) -> None:
    """Wait until a run has ended."""
    eventually(
        lambda: (
            _condition(kubectl, name, "Running").get("ansibleResult")
            or _condition(kubectl, name, "Failure")
        ),
        details=operator.log,
    )


def _events(kubectl: Kubectl, reason: str) -> list[str]:
    return [each["message"] for each in kubectl.list("events") if each["reason"] == reason]


def test_ticks_run_once_and_are_shown(kubectl: Kubectl, operator: Operator, project: Path) -> None:
    """Missed ticks, suspension, deadline, a failure, a bad schedule, and the clock itself."""
    _prepare(project)
    names = ("missed", "suspended", "late", "failing")
    kubectl.apply(
        echo("clock", cron="* * * * *"),
        echo("missed", cron=_YEARLY),
        echo("suspended", cron=_YEARLY, suspend=True),
        echo("late", cron=_YEARLY, deadline=60),
        echo("failing", cron=_YEARLY, broken=True),
        echo("bad", cron="0 99 * * *"),
    )
    operator.start()

    def becomes(name: str, *times: str | None) -> None:
        eventually(lambda: _times(kubectl, name), lambda now: now == times, details=operator.log)

    for name, shown in zip(names, (_NEXT, None, _NEXT, _NEXT), strict=True):
        _wait_for_condition(kubectl, operator, name)
        becomes(name, None, shown)
    for name in names:
        _set_back(kubectl, name)
    becomes("missed", _TICK, _NEXT)
    assert _ticks(kubectl, "missed") == [_TICK]
    # The pending tick is announced until a run with it succeeds.
    becomes("failing", _LONG_AGO["lastScheduleTime"], _TICK)
    kubectl.merge(KIND, "failing", {"spec": {"broken": False}})
    becomes("failing", _TICK, _NEXT)
    assert set(_ticks(kubectl, "failing")) == {_TICK}
    becomes("late", _LONG_AGO["lastScheduleTime"], _NEXT)
    eventually(lambda: _events(kubectl, "MissedSchedule"), details=operator.log)
    assert operator.metric("operator_runner_missed_schedules_total") == 1
    kubectl.merge(KIND, "suspended", {"spec": {"say": "again"}})
    becomes("suspended", _LONG_AGO["lastScheduleTime"], None)
    kubectl.merge(KIND, "suspended", {"spec": {"suspend": False}})
    becomes("suspended", _TICK, _NEXT)
    assert (_ticks(kubectl, "suspended"), _ticks(kubectl, "late")) == ([_TICK], [])

    _wait_for_condition(kubectl, operator, "bad")
    error = _condition(kubectl, "bad", "Scheduled")
    assert (error["status"], error["reason"]) == ("False", "InvalidSchedule")
    assert "position 2: invalid hour '99'" in error["message"]
    assert _condition(kubectl, "bad", "Successful")["status"] == "True"
    assert _events(kubectl, "InvalidSchedule") == [error["message"]]
    kubectl.merge(KIND, "bad", {"spec": {"cron": _YEARLY}})
    becomes("bad", None, _NEXT)
    assert _condition(kubectl, "bad", "Scheduled")["status"] == "True"

    eventually(lambda: _times(kubectl, "clock")[0], seconds=150, details=operator.log)
    ticks = _ticks(kubectl, "clock")
    assert len(set(ticks)) == len(ticks)
    assert all(tick.endswith(":00Z") for tick in ticks)
    # Counted after the status is written.
    eventually(
        lambda: operator.metric("operator_runner_runs_total", trigger="schedule") >= 3,
        details=operator.log,
    )


@pytest.mark.slow
def test_a_tick_survives_the_death_of_the_leader(
    kubectl: Kubectl, make_operator: Callable[[str], Operator], project: Path
) -> None:
    """Another replica repeats the killed run once; a recorded run is not repeated.

    The operator that starts again later has neither seen the tick nor its run.
    """
    _prepare(project)
    kubectl("create", "configmap", "hold")
    kubectl.apply(echo(cron=_YEARLY))
    elect = (
        "--leader-elect",
        "--leader-election-id=ticks",
        f"--leader-election-namespace={kubectl.namespace}",
        "--leader-elect-lease-duration=15s",
        "--leader-elect-renew-deadline=10s",
    )
    first, second = make_operator("first"), make_operator("second")
    first.start(*elect)
    eventually(lambda: _times(kubectl, "a") == (None, _NEXT), details=first.log)
    second.start(*elect)
    _set_back(kubectl, "a")
    eventually(lambda: _ticks(kubectl, "a") == [_TICK], details=first.log)
    first.kill()
    eventually(lambda: _ticks(kubectl, "a") == [_TICK] * 2, seconds=150, details=second.log)
    kubectl("delete", "configmap", "hold")
    eventually(lambda: _times(kubectl, "a") == (_TICK, _NEXT), details=second.log)
    second.kill()
    runs = len(first.lines("Reconciled"))
    first.start(*elect)
    eventually(lambda: len(first.lines("Reconciled")) > runs, seconds=150, details=first.log)
    assert _ticks(kubectl, "a") == [_TICK] * 2
    assert _times(kubectl, "a") == (_TICK, _NEXT)
