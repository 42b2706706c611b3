"""What `operator-runner get` shows of one resource."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.cluster import CAUSE_ANNOTATION, RUN_ANNOTATION
from operator_runner.reconcile.annotations import SUSPEND_ANNOTATION
from operator_runner.tools.operator_api.run_history import record_of
from operator_runner.tools.operator_api.watched_kinds import NextRun, Queues
from operator_runner.tools.resources.reconcile import activity
from operator_runner.tools.resources.summary import (
    SummaryState,
    by_resource,
    is_same,
    summarize,
    with_last_run,
    with_next_run,
    with_queues,
)

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def condition(type_: str, status: str, **fields: Any) -> Json:
    return {"type": type_, "status": status, **fields}


RUNNING = condition("Running", "True", reason="Running", message="Running reconciliation")
WAITING = condition(
    "Running",
    "True",
    reason="Running",
    message="Running reconciliation; the role asked to run again in 1m30s",
    ansibleResult={"completion": "2026-01-01T12:00:00+00:00"},
)
IDLE = condition("Running", "True", reason="Successful")
DESELECTED = condition("Running", "False", reason="Deselected")
DONE = condition("Successful", "True")
DRIFTED = condition(
    "Drifted", "True", reason="ObjectsDiffer", message="A run would write: ConfigMap x/a changed"
)
UNKNOWN_DRIFT = condition(
    "Drifted", "Unknown", reason="PreviewFailed", message="The dry run failed: no"
)
FAILED = condition(
    "Failure", "True", message="no\n(task 'x')", lastTransitionTime="2026-01-01T12:00:00Z"
)


def body(*conditions: Json, status: Json | None = None, **metadata: Any) -> Json:
    return {
        "metadata": {"name": "a", "uid": "u", **metadata},
        "status": {"conditions": list(conditions), **(status or {})},
    }


@pytest.mark.parametrize(
    ("resource", "state", "ready"),
    [
        (body(), SummaryState.UNHANDLED, ""),
        (body(RUNNING), SummaryState.RUNNING, ""),
        (body(WAITING, condition("Successful", "False")), SummaryState.WAITING, "False"),
        (body(IDLE, DONE), SummaryState.SUCCEEDED, "True"),
        (body(IDLE, DONE, condition("Available", "False")), SummaryState.SUCCEEDED, "False"),
        (body(IDLE, DONE, condition("Ready", "Unknown")), SummaryState.SUCCEEDED, "Unknown"),
        (body(IDLE, DONE, DRIFTED), SummaryState.DRIFTED, "True"),
        (body(condition("Successful", "False"), FAILED, DRIFTED), SummaryState.FAILED, "False"),
        (body(IDLE, DONE, UNKNOWN_DRIFT), SummaryState.SUCCEEDED, "True"),
        (body(IDLE, DONE, condition("Drifted", "True")), SummaryState.SUCCEEDED, "True"),
        (body(DESELECTED, DONE), SummaryState.DESELECTED, "True"),
        (body(condition("Successful", "False"), FAILED), SummaryState.FAILED, "False"),
        (body(FAILED, deletionTimestamp="now"), SummaryState.DELETING, ""),
        (body(FAILED, annotations={SUSPEND_ANNOTATION: "true"}), SummaryState.SUSPENDED, ""),
        ({"metadata": {}, "status": "odd"}, SummaryState.UNHANDLED, ""),
        (
            {"metadata": {}, "status": {"conditions": ["odd", {"type": 1}]}},
            SummaryState.UNHANDLED,
            "",
        ),
    ],
)
def test_state_and_readiness_follow_from_conditions(
    resource: Json, state: SummaryState, ready: str
) -> None:
    """The annotation and a deletion come before the conditions of the last run."""
    found = summarize(REF, resource)
    assert (found.state, found.ready) == (state, ready)


@pytest.mark.parametrize("drifted", [DRIFTED, UNKNOWN_DRIFT])
def test_drift_is_the_reason_unless_the_run_failed(drifted: Json) -> None:
    """A dry run that failed is shown as well; a failure comes first, and JSON has both."""
    found = summarize(REF, body(IDLE, DONE, drifted))
    assert found.why == found.as_json()["drift"] == drifted["message"]
    failed = summarize(REF, body(FAILED, drifted))
    assert failed.why == "no (task 'x')"
    assert failed.as_json()["drift"] == drifted["message"]


def test_a_suspended_resource_that_is_deleted_shows_both() -> None:
    """Its clean-up runs after the resume, which `get` says in place of the last failure."""
    deleted = "2026-01-01T12:00:00Z"
    metadata: Json = {"annotations": {SUSPEND_ANNOTATION: "true"}, "deletionTimestamp": deleted}
    found = summarize(REF, body(FAILED, **metadata))
    assert found.state is SummaryState.SUSPENDED
    assert found.why == "being deleted; no clean-up runs until it is resumed"
    assert found.as_json()["deletionTimestamp"] == deleted


def test_a_failure_has_its_message_and_its_age() -> None:
    """The message is on one line in tables."""
    found = summarize(REF, body(FAILED))
    assert found.failing_since == NOON
    assert found.retries
    assert found.why == "no (task 'x')"
    assert found.as_json()["message"] == "no\n(task 'x')"


def test_the_next_run_is_that_of_the_schedule_or_of_the_role() -> None:
    """A suspended resource has no next run."""
    tick = {"nextScheduleTime": "2026-01-01T12:00:00Z"}
    assert summarize(REF, body(IDLE, DONE, status=tick)).next_run == NOON
    suspended = body(IDLE, DONE, status=tick, annotations={SUSPEND_ANNOTATION: "true"})
    assert summarize(REF, suspended).next_run is None
    next_run = summarize(REF, body(WAITING)).next_run
    assert next_run is not None
    assert (next_run - NOON).total_seconds() == 90


def test_the_last_event_has_cause_and_run() -> None:
    """Events of other resources of the same name are left out, and those without a run."""

    def event(time: str, cause: str, uid: str = "u", run: str = "r") -> Json:
        found = ended("Successful", time, cause=cause, run=run)
        return {**found, "resource": {**found["resource"], "uid": uid}}

    events = by_resource(
        [
            event("12:00", "spec: spec.size", run="last"),
            event("11:00", "spec: created"),
            event("13:00", "start", uid="other"),
            event("13:00", "start", run=""),
        ]
    )
    found = summarize(REF, body(IDLE, DONE), events["u", "a"])
    assert (found.cause, found.run_id, found.last_run) == ("spec: spec.size", "last", NOON)


def test_the_queue_of_the_operator_has_the_next_run() -> None:
    """A period or a retry; the tick of a schedule stays if it is earlier."""
    plain = summarize(REF, body(IDLE, DONE))
    later, soon = NOON + timedelta(hours=10), NOON + timedelta(minutes=1)
    found = with_next_run(plain, NextRun(later, None, "period: 10h"))
    assert (found.next_run, found.next_cause) == (later, "period: 10h")
    ticking = replace(plain, next_run=soon)
    assert with_next_run(ticking, NextRun(later)).next_run == soon
    assert with_next_run(plain, NextRun(None, 3)).queue_position == 3
    assert with_next_run(plain, None) == plain


def ended(
    reason: str, time: str, note: str = "", cause: str = "start", run: str | None = None
) -> Json:
    """Return the Event about the end of a run, as a record; its ID is the time."""
    run_id = time if run is None else run
    found = record_of(
        {
            "metadata": {"annotations": {CAUSE_ANNOTATION: cause, RUN_ANNOTATION: run_id}},
            "eventTime": f"2026-01-01T{time}:00.000000Z",
            "regarding": {"apiVersion": "example.com/v1", "kind": "Foo", "uid": "u", "name": "a"},
            "type": "Warning" if reason == "Failed" else "Normal",
            "reason": reason,
            "note": f"{note} (why: {cause})",
        }
    )
    assert found is not None
    return found


def test_without_conditions_events_have_the_state() -> None:
    """With message and begin of the failures; Events about anything else have no state."""
    success, first = ended("Successful", "10:00"), ended("Failed", "12:00", "no")
    again, finding = ended("Failed", "12:05", "still no"), ended("NotIdempotent", "12:06")
    found = summarize(REF, body(), [again, success, finding, first])
    assert (found.state, found.why, found.run_id) == (SummaryState.FAILED, "still no", "12:05")
    assert (found.failing_since, found.retries) == (NOON, True)
    found = summarize(REF, body(), [success])
    assert (found.state, found.why, found.retries) == (SummaryState.SUCCEEDED, "start", False)
    assert summarize(REF, body(), [finding]).state is SummaryState.UNHANDLED


@pytest.mark.parametrize(
    ("next_run", "state", "message"),
    [
        (NextRun(NOON, state="Running"), SummaryState.RUNNING, "no"),
        (NextRun(NOON, state="Delayed", failures=2), SummaryState.FAILED, "no"),
        (NextRun(NOON, state="Delayed", cause="period: 1m"), SummaryState.SUCCEEDED, ""),
        (NextRun(NOON, state="Delayed", cause="requeue_after: 1m"), SummaryState.WAITING, ""),
        (NextRun(None, 1, state="Queued"), SummaryState.FAILED, "no"),
    ],
)
def test_without_conditions_the_queue_has_a_later_state_than_events(
    next_run: NextRun, state: SummaryState, message: str
) -> None:
    """A success that changes nothing emits no Event; conditions are not overridden."""
    found = with_next_run(summarize(REF, body(), [ended("Failed", "12:00", "no")]), next_run)
    assert (found.state, found.message, found.next_run) == (state, message, next_run.due)
    unhandled = with_next_run(summarize(REF, body()), NextRun(None, 1, state="Queued"))
    assert (unhandled.state, unhandled.queue_position) == (SummaryState.QUEUED, 1)
    assert with_next_run(summarize(REF, body(FAILED)), next_run).state is SummaryState.FAILED


def test_without_conditions_an_operator_has_the_drift() -> None:
    """It replaces a success only; conditions are not overridden. Unknown drift is only a reason."""
    resource = {"apiVersion": "example.com/v1", "kind": "Foo", "namespace": "default", "name": "a"}
    differs: Json = {"resource": resource, "status": "True", "message": "it differs"}
    unknown = {**differs, "status": "Unknown"}
    succeeded = summarize(REF, body(), [ended("Successful", "12:00", "")])
    for entry, state in ((differs, SummaryState.DRIFTED), (unknown, SummaryState.SUCCEEDED)):
        found = with_queues(succeeded, Queues(drifts=(entry,)))
        assert (found.state, found.why) == (state, "it differs")
    other = {**differs, "resource": {**resource, "name": "b"}}
    assert with_queues(succeeded, Queues(drifts=(other,))) == succeeded
    for unchanged in (
        summarize(REF, body(), [ended("Failed", "12:00", "no")]),
        summarize(REF, body(FAILED)),
    ):
        assert with_queues(unchanged, Queues(drifts=(differs,))) == unchanged


def run(started: str, **fields: Any) -> Json:
    """Return a run as an operator has it."""
    resource = {"apiVersion": "example.com/v1", "kind": "Foo", "namespace": "default", "name": "a"}
    return {
        "id": started,
        "resource": {**resource, "uid": "u"},
        "outcome": "succeeded",
        "started": f"2026-01-01T{started}:00.000Z",
        "causes": [{"trigger": "period", "detail": "10h"}],
        **fields,
    }


def test_the_last_run_is_that_of_the_operator_also_if_it_changed_nothing() -> None:
    """Not that of a deleted resource of the same name, and not one before the last Event."""
    summary = summarize(REF, body(IDLE, DONE), [ended("Successful", "12:00")])
    ended_run = run("12:05", finished="2026-01-01T12:06:00.000Z")
    queues = Queues(runs=(run("12:01"), ended_run))
    found = with_queues(summary, queues)
    assert (found.run_id, found.cause) == ("12:05", "period: 10h")
    assert found.last_run == NOON + timedelta(minutes=6)
    assert with_queues(replace(summary, uid="new"), queues) == replace(summary, uid="new")
    assert with_last_run(summary, run("11:00", finished="2026-01-01T11:01:00.000Z")) == summary


def test_a_running_resource_shows_its_task_and_for_how_long() -> None:
    """A new task of the same run is not a change that `--watch` prints."""
    task = {"name": "Wait for it", "started": "2026-01-01T12:01:00.000Z"}
    of_run = run("12:00", outcome="running", task=task)
    found = with_last_run(summarize(REF, body(RUNNING, FAILED)), of_run)
    assert found.why_at(NOON + timedelta(minutes=6)) == "task 'Wait for it' for 5m"
    assert found.as_json()["task"] == "Wait for it"
    assert is_same(found, replace(found, task="Next"))
    assert not is_same(found, replace(found, run_id="Next"))


def test_a_queued_resource_shows_what_it_waits_for() -> None:
    """The runs of the same operator, and the number of those that are before it."""
    entry: Json = {"resource": run("12:00")["resource"], "state": "Queued", "operator": "one"}
    slow = {**entry, "resource": {**entry["resource"], "name": "slow"}, "state": "Running"}
    foreign = {**slow, "operator": "two"}
    found = with_queues(summarize(REF, body()), Queues((slow, foreign, {**entry, "position": 3})))
    assert (found.state, found.why_at(NOON)) == (
        SummaryState.QUEUED,
        "behind foo/slow, 2 queued before it",
    )


def test_the_progress_of_a_requested_run_is_its_task_or_its_place_in_the_queue() -> None:
    """What `reconcile --wait` prints; of a resource without either, nothing."""
    entry: Json = {"resource": run("12:00")["resource"], "state": "Queued", "position": 2}
    assert activity(Queues((entry,)), REF, "u") == "is queued behind 1 queued before it"
    task = {"name": "Wait for it", "started": "2026-01-01T12:01:00.000Z"}
    running = run("12:00", outcome="running", task=task)
    assert activity(Queues(runs=(running,)), REF, "u") == "runs task 'Wait for it'"
    assert activity(Queues(runs=(running,)), REF, "other") == ""


def test_queues_are_searched_by_group_kind_namespace_and_name() -> None:
    """An operator may watch another version than the CLI reads."""
    resource = {"apiVersion": "example.com/v2", "kind": "Foo", "namespace": "default", "name": "a"}
    due = "2026-01-01T12:00:00.000Z"
    item: Json = {"resource": resource, "due": due, "causes": [{"trigger": "retry"}]}
    assert Queues((item,)).next_run(REF) == NextRun(NOON, None, "retry")
    other = {**item, "resource": {**resource, "name": "b"}}
    assert Queues((other,)).next_run(REF) is None
