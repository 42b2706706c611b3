"""Records of runs: what they have, what they hide, and how many are kept."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import structlog

from operator_runner.core.model import (
    GVK,
    Cause,
    FieldChange,
    ObjectRef,
    RunEvent,
    RunOutcome,
    Stats,
    TaskFailure,
    Trigger,
)
from operator_runner.telemetry.runs.received import check_run
from operator_runner.telemetry.runs.records import MAX_TASKS, RunRecorder, RunStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REF = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
CONFIG = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "home")
DONE = RunOutcome(Stats(ok=1))
CENSORED = "the output has been hidden due to the fact that 'no_log: true' was specified"


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def task(name: str, start: float, end: float, **result: Any) -> RunEvent:
    data = {"task": name, "start": at(start), "end": at(end), "duration": end - start}
    return RunEvent("runner_on_ok", {**data, "res": result})


def change(seconds: float, path: str = "data.text") -> FieldChange:
    moment = NOON.timestamp() + seconds
    return FieldChange(CONFIG, path, b"1", b"2", moment, '"a"', '"b"')


def recorder() -> RunRecorder:
    return RunRecorder("1", REF, "uid", (Cause(Trigger.SPEC, "spec.text"),), NOON)


def changes_of(run: RunRecorder) -> list[tuple[Any, Any]]:
    found = run.document()["changes"]
    return [(each.get("after"), each.get("task")) for each in found]


def test_a_change_has_its_values_and_its_task_after_the_run() -> None:
    """Until then, events may be missing that show whether the task hides its results."""
    run = recorder()
    run.on_change(change(1.5))
    assert run.document()["changes"][0]["hidden"] is True
    run.on_event(task("Write", 1, 2, changed=True))
    run.end(DONE, NOON + timedelta(seconds=3))
    assert changes_of(run) == [('"b"', "Write")]


def test_the_task_in_progress_is_the_last_one() -> None:
    """It has a start and no duration; after the end of the run only tasks with results are left."""
    run = recorder()
    started = {"task": "Wait", "task_path": "main.yml:7"}
    run.on_event(RunEvent("playbook_on_task_start", {"task": "Write"}))
    assert [each["name"] for each in run.document()["tasks"]] == ["Write"]
    run.on_event(task("Write", 1, 2))
    run.on_event(RunEvent("playbook_on_task_start", started))
    document = run.document()
    assert document["tasks"][1:] == [
        {"name": "Wait", "action": "", "path": "main.yml:7", "started": "2026-01-01T12:00:02.000Z"}
        | {"result": "running"}
    ]
    assert check_run(document)["tasks"] == document["tasks"]
    task_now = {"name": "Wait", "action": "", "path": "main.yml:7", "started": ANY}
    assert check_run(run.summary())["task"] == task_now
    run.end(None, NOON + timedelta(seconds=3))
    assert [each["name"] for each in run.document()["tasks"]] == ["Write"]


def test_a_meta_task_starts_when_the_task_before_has_ended() -> None:
    """Its event has the start of that task; changes meanwhile are those of that task."""
    run = recorder()
    run.on_event(task("Write", 1, 2))
    run.on_event(task("flush_handlers", 1, 2.5))
    run.on_change(change(2.25))
    run.on_change(change(1.5))
    run.end(DONE, NOON + timedelta(seconds=3))
    document = run.document()
    times = [(each["started"][-7:-1], each["seconds"]) for each in document["tasks"]]
    assert times == [("01.000", 1.0), ("02.000", 0.5)]
    assert changes_of(run) == [('"b"', "flush_handlers"), ('"b"', "Write")]


def test_values_are_hidden_from_the_first_task_with_no_log_on() -> None:
    """A background process of that task may write until the run ends."""
    run = recorder()
    run.on_event(task("Open", 0, 1))
    run.on_event(task("Hidden", 1, 2, censored=CENSORED))
    run.on_event(task("Later", 2, 3))
    for seconds in (0.5, 1.5, 2.5):
        run.on_change(change(seconds))
    run.end(DONE, NOON + timedelta(seconds=3))
    assert changes_of(run) == [('"b"', "Open"), (None, "Hidden"), (None, "Later")]


def test_a_task_with_no_log_hides_all_values_of_a_run_on_another_machine() -> None:
    """The clock of its node may be late or early."""
    run = recorder()
    run.on_event(replace(task("Open", 0, 1), is_remote=True))
    run.on_change(change(0.5))
    run.on_change(change(2.5))
    shown = [('"b"', "Open"), ('"b"', None)]
    ended = deepcopy(run)
    ended.end(DONE, NOON + timedelta(seconds=3))
    assert changes_of(ended) == shown
    run.on_event(replace(task("Hidden", 10, 12, censored=CENSORED), is_remote=True))
    run.end(DONE, NOON + timedelta(seconds=3))
    assert [after for after, _ in changes_of(run)] == [None, None]


def test_a_started_task_with_no_log_hides_values_though_it_never_ends() -> None:
    """A run that is ended at its deadline has no event of the task's end."""
    run = recorder()
    run.on_event(task("Open", 0, 1))
    run.on_event(RunEvent("playbook_on_task_start", {"task": "Hidden", "task_args": CENSORED}))
    run.on_change(change(0.5))
    run.on_change(change(1.5))
    failure = TaskFailure("Hidden", "timeout")
    run.end(RunOutcome(None, (failure,)), NOON + timedelta(seconds=3))
    assert [after for after, _ in changes_of(run)] == ['"b"', None]


def test_tasks_beyond_the_limit_are_counted() -> None:
    """A loop over thousands of tasks must not fill the memory."""
    run = recorder()
    for number in range(MAX_TASKS + 3):
        run.on_event(task(f"t{number}", number, number + 1))
    found = run.document()
    assert (len(found["tasks"]), found["dropped"]) == (MAX_TASKS, {"tasks": 3})


def test_each_write_of_an_object_is_recorded_once() -> None:
    """By verb; those of other resources are not."""
    store = RunStore()
    store.started(REF, "uid", "1", ())
    for verb in ("create", "patch", "patch"):
        store.on_write(REF, CONFIG, verb)
    store.on_write(CONFIG, CONFIG, "delete")
    store.ended("1", DONE)
    found = store.document("1")
    assert found is not None
    about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "home"}
    assert found["writes"] == [{"object": about, "verb": v} for v in ("create", "patch")]


def finished(store: RunStore, run_id: str, ref: ObjectRef = REF, keep: int = 20) -> None:
    store.started(ref, "uid", run_id, ())
    store.ended(run_id, DONE, keep)


def ids(store: RunStore) -> list[str]:
    return sorted(each["id"] for each in store.summaries(lambda _: True, 100))


async def test_the_last_runs_of_each_resource_are_kept() -> None:
    """As many as artifacts; those of a deleted resource are dropped."""
    store, other = RunStore(), ObjectRef(REF.gvk, "default", "other")
    for run_id in ("1", "2", "3"):
        finished(store, run_id, keep=2)
    finished(store, "4", other)
    assert ids(store) == ["2", "3", "4"]
    last = store.summaries(lambda _: True, 100, is_last=True)
    assert {each["id"] for each in last} == {"3", "4"}
    store.forget(REF)
    assert ids(store) == ["4"]
    assert store.document("2") is None


async def test_the_oldest_runs_are_dropped_beyond_the_size() -> None:
    """The memory of the operator is limited, whatever the number of resources."""
    store = RunStore(max_bytes=2000)
    for number in range(10):
        finished(store, str(number), ObjectRef(REF.gvk, "default", str(number)))
    kept = ids(store)
    assert 0 < len(kept) < 10
    assert kept[-1] == "9"


def test_a_run_has_the_trace_of_its_log_lines() -> None:
    """Also in summaries; without traces there is none."""
    store = RunStore()
    with structlog.contextvars.bound_contextvars(trace_id="5573a27b"):
        store.started(REF, "uid", "1", ())
    store.ended("1", DONE)
    store.started(REF, "uid", "2", ())
    store.ended("2", DONE)
    found = store.summaries(lambda _: True, 2)
    assert {each["id"]: each.get("traceID") for each in found} == {"1": "5573a27b", "2": None}
