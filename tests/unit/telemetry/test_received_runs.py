"""Runs and queues that others could have written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.core.model import (
    GVK,
    Cause,
    FieldChange,
    ObjectRef,
    RunApiRequest,
    RunEvent,
    RunOutcome,
    TaskFailure,
    Trigger,
)
from operator_runner.telemetry.runs.received import (
    check_dependents,
    check_queue_entry,
    check_run,
    check_schedule,
)
from operator_runner.telemetry.runs.records import RunRecorder

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REF = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
RESOURCE = {"apiVersion": "example.com/v1", "kind": "Page", "namespace": "default", "name": "home"}
RUN: dict[str, Any] = {
    "id": "1",
    "resource": RESOURCE,
    "outcome": "failed",
    "started": "2026-01-01T12:00:00Z",
}
ENTRY: dict[str, Any] = {"resource": RESOURCE, "state": "Delayed"}


def test_a_record_of_this_operator_is_kept_whole() -> None:
    """Every field that a record has is known."""
    run = RunRecorder("1", REF, "uid", (Cause(Trigger.SPEC, "spec.text"),), NOON, "5573a27b")
    data = {"task": "Write", "start": NOON.isoformat(), "end": NOON.isoformat(), "duration": 1.5}
    run.on_event(RunEvent("runner_on_ok", {**data, "res": {"censored": "hidden"}}))
    run.on_event(RunEvent("runner_on_ok", {**data, "host": "web-1"}))
    for number in range(300):
        run.on_write(replace(REF, name=str(number)), "create")
    run.on_change(FieldChange(REF, "data.text", b"1", b"2", NOON.timestamp() - 1, '"a"', '"b"'))
    run.on_change(FieldChange(REF, "data.text", b"1", b"2", NOON.timestamp() + 1, '"a"', '"b"'))
    run.on_request(RunApiRequest("GET", "/api", 200, NOON.timestamp(), 0.1))
    for _ in range(300):
        run.on_log("info: Reconciling")
    run.end(RunOutcome(None, (TaskFailure("Write", "no", "a.yml:1"),)), NOON + timedelta(seconds=1))
    document = json.loads(json.dumps(run.document()))
    details = {"tasks", "writes", "changes", "requests", "log", "dropped", "failedTask", "traceID"}
    assert details <= document.keys()
    assert document["tasks"][1]["host"] == "web-1"
    assert check_run(document) == document


@pytest.mark.parametrize(
    "forged",
    [
        [],
        None,
        {"resource": "x"},
        {**RUN, "resource": "x"},
        {**RUN, "resource": {**RESOURCE, "name": ["x"]}},
        {**RUN, "id": "../x"},
        {**RUN, "traceID": "a b"},
        {**RUN, "started": "2026-01-01T12:00:00"},
        {**RUN, "started": "0001-01-01T00:00:00+14:00"},
        {**RUN, "seconds": float("inf")},
        {**RUN, "seconds": 10**4000},
        {**RUN, "seconds": True},
        {**RUN, "failedTask": "x"},
        {**RUN, "causes": [1]},
        {**RUN, "changes": [1]},
        {**RUN, "changes": [{"object": None, "path": "x"}]},
        {**RUN, "tasks": {"name": "x"}},
        {**RUN, "log": [{}]},
        {**RUN, "dropped": []},
    ],
)
def test_a_run_of_another_shape_is_invalid(forged: Any) -> None:
    """Nothing that reads runs checks types again."""
    with pytest.raises(ValueError, match=r"expected|Invalid|range"):
        check_run(forged)


@pytest.mark.parametrize(
    "forged",
    [
        {"resource": "x"},
        {**ENTRY, "due": 1},
        {**ENTRY, "position": "1"},
        {**ENTRY, "causes": ["x"]},
        {**ENTRY, "causes": [{"trigger": "x", "detail": 1}]},
    ],
)
def test_an_entry_of_another_shape_is_invalid(forged: Any) -> None:
    """As for runs."""
    assert check_queue_entry(ENTRY) == ENTRY
    with pytest.raises(ValueError, match=r"expected|Invalid|range"):
        check_queue_entry(forged)


@pytest.mark.parametrize(
    "forged", [{"resource": "x"}, {"resource": RESOURCE, "next": 1}, {"error": "x"}, []]
)
def test_a_schedule_of_another_shape_is_invalid(forged: Any) -> None:
    """As for runs."""
    known = {"resource": RESOURCE, "next": "2026-01-01T12:00:00Z", "error": "x"}
    assert check_schedule({**known, "other": 1}) == known
    with pytest.raises(ValueError, match="expected"):
        check_schedule(forged)


@pytest.mark.parametrize(
    "forged", [{"resource": RESOURCE}, {"resource": RESOURCE, "objects": ["x"]}, {"objects": []}]
)
def test_dependents_of_another_shape_are_invalid(forged: Any) -> None:
    """As for runs."""
    known = {"resource": RESOURCE, "objects": [RESOURCE]}
    assert check_dependents({**known, "other": 1}) == known
    with pytest.raises(ValueError, match="expected"):
        check_dependents(forged)


def test_texts_and_lists_are_limited_and_unknown_fields_dropped() -> None:
    """Whoever forges a run does not fill the memory."""
    run = check_run({**RUN, "message": "x" * 10**6, "log": ["x"] * 10**5, "other": "x"})
    assert len(run["message"]) < 5000
    assert len(run["log"]) <= 1000
    assert "other" not in run
