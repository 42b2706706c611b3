"""The outcome of a reconcile, from the answer of the operator."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.testing.outcome import Outcome, outcome_of

PROJECT = Path("/project")
REPORT = {
    "apiVersion": "testing.example.com/v1",
    "kind": "Report",
    "metadata": {"name": "weekly", "namespace": "test"},
}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "test", "name": "weekly"}


def write(*verbs: str, about: dict[str, Any] = MAP, body: Any = REPORT) -> dict[str, Any]:
    """Return what the operator reports about an object."""
    return {"object": about, "verbs": list(verbs), "body": body}


def change(path: str, **values: str) -> dict[str, Any]:
    """Return a changed field of the ConfigMap in the record of the run."""
    return {"object": MAP, "at": "2026-01-01T00:00:00Z", "path": path, **values}


def outcome(*objects: dict[str, Any], record: Any = None, **answer: Any) -> Outcome:
    """Return the outcome of a successful reconcile."""
    full: dict[str, Any] = {
        "successful": True,
        "record": record or {},
        "resource": REPORT,
        "objects": list(objects),
        "events": [],
        **answer,
    }
    return outcome_of(full, REPORT, project=PROJECT, output="")


def test_a_new_object_is_created_and_not_changed() -> None:
    """Even if the run has written it again."""
    found = outcome(write("create", "patch"), record={"changes": [change("data.a")]})
    assert (len(found.created), found.changed, found.deleted) == (1, [], [])
    assert repr(found) == "<Report/weekly succeeded: created ConfigMap/weekly>"


def test_a_write_without_a_difference_is_not_a_change() -> None:
    """Modules patch objects that are as they should be."""
    found = outcome(write("patch"))
    assert (found.created, found.changed, found.deleted) == ([], [], [])
    assert repr(found) == "<Report/weekly succeeded: wrote nothing>"


def test_a_changed_object_has_its_differences() -> None:
    """Values that may be secret are hidden, fields may be new."""
    changes = [change("data.a", before='"1"', after='"2"'), change("data.b", before="", after="3")]
    found = outcome(write("patch"), record={"changes": [*changes, change("data.c")]})
    assert repr(found.changed) == (
        '[ConfigMap/weekly (data.a: "1" -> "2"; data.b: absent -> 3; data.c (hidden))]'
    )


@pytest.mark.parametrize(
    "body", [None, {**REPORT, "metadata": {"name": "weekly", "deletionTimestamp": "now"}}]
)
def test_an_object_that_waits_for_finalizers_is_deleted(body: Any) -> None:
    """It may wait for its finalizers."""
    found = outcome(write("patch", "delete", body=body), record={"changes": [change("data.a")]})
    assert (found.created, found.changed) == ([], [])
    assert found.deleted("ConfigMap", "weekly")["metadata"]["name"] == "weekly"


def test_an_object_that_is_replaced_is_not_deleted() -> None:
    """It is created."""
    found = outcome(write("delete", "create"))
    assert found.created("ConfigMap", "weekly", namespace="test")
    assert found.deleted == []


def test_a_missing_object_is_named_with_those_that_were_found() -> None:
    """As the message of the assertion."""
    found = outcome(write("create"))
    with pytest.raises(AssertionError) as excinfo:
        found.created("Secret", "weekly")
    assert str(excinfo.value) == (
        "Secret/weekly was not created by Report/weekly, which has created ConfigMap/weekly"
    )


def test_paths_of_tasks_are_those_in_the_project() -> None:
    """With the line."""
    path = "/project/roles/report/tasks/main.yml:3"
    task = {"name": "Write", "action": "k8s", "result": "failed", "path": path}
    record = {
        "tasks": [task],
        "failedTask": {"name": "Write", "path": path},
        "message": "no\nnumbers",
    }
    found = outcome(record=record, successful=False)
    assert found.tasks[0].path == "roles/report/tasks/main.yml:3"
    assert repr(found) == (
        "<Report/weekly failed: task 'Write' (roles/report/tasks/main.yml:3): no numbers>"
    )


def test_a_failure_without_a_run_has_the_reason() -> None:
    """There is no task."""
    found = outcome(successful=False, message="nothing was run: suspended")
    assert repr(found) == "<Report/weekly failed: nothing was run: suspended>"


@pytest.mark.parametrize(
    ("again", "expected"),
    [("requeue_after", timedelta(seconds=5)), ("period", None), ("schedule", None)],
)
def test_only_the_role_requeues(again: str, expected: timedelta | None) -> None:
    """The period of the watch is not part of the outcome."""
    assert outcome(again=again, seconds=5.0).requeue_after == expected


def test_content_of_secrets_is_hidden() -> None:
    """It can be compared."""
    body = {
        "kind": "Secret",
        "metadata": {"name": "weekly", "annotations": {"last": "aHVudGVy"}},
        "data": {"password": "aHVudGVy"},
    }
    about = {**MAP, "kind": "Secret"}
    secret = outcome(write("create", about=about, body=body)).created("Secret", "weekly")
    assert secret == body
    assert "aHVudGVy" not in repr(secret)
    assert secret["metadata"]["name"] == "weekly"
