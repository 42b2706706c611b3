"""`operator_runner.testing`: reconciles of a role, as its tests see them."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.testing import OperatorProcessError, Reconcile
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator

NUMBERS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "numbers"},
    "data": {"numbers": "1 2 3"},
}


def report(**spec: Any) -> dict[str, Any]:
    """Return a Report of the numbers."""
    return {
        "apiVersion": "testing.example.com/v1",
        "kind": "Report",
        "metadata": {"name": "weekly"},
        "spec": {"title": "Weekly", "source": "numbers", **spec},
    }


def test_an_outcome_has_objects_status_events_and_tasks(reconcile: Reconcile) -> None:
    """Of the first run; the next one, of the resource as it is now, changes nothing."""
    outcome = reconcile(report(), objects=[NUMBERS])
    assert outcome.successful
    assert outcome.failure is None
    created = outcome.created("ConfigMap", "weekly")
    assert created["data"] == {"title": "Weekly", "numbers": "1 2 3"}
    # As in the operator, objects belong to the resource.
    assert created["metadata"]["ownerReferences"][0]["kind"] == "Report"
    assert (outcome.changed, outcome.deleted) == ([], [])
    assert outcome.condition("Successful")["status"] == "True"
    assert "Write the report" in [task.name for task in outcome.tasks if task.result == "changed"]
    assert outcome.events
    assert outcome.requeue_after is None
    assert "Write the report" in outcome.output

    assert outcome.resource is not None
    again = reconcile(outcome.resource)
    assert again.successful
    assert (again.created, again.changed, again.deleted) == ([], [], [])


def test_an_operator_in_the_same_cluster_leaves_resources_of_tests_alone(
    reconcile: Reconcile, operator_project: Path, control_plane: Path, tmp_path: Path
) -> None:
    """The author's own, of the same project: it neither writes the objects nor runs a finalizer."""
    other = Operator(operator_project, control_plane, reconcile.namespace, tmp_path, {})
    other.start()
    try:
        assert reconcile(report(), objects=[NUMBERS]).created("ConfigMap", "weekly")
        deleted = reconcile.delete(report())
        assert [task.name for task in deleted.tasks if task.result != "skipped"]
        assert not other.lines("Reconciled")
    finally:
        other.kill()


def test_an_edit_changes_fields(reconcile: Reconcile) -> None:
    """Each with its path and both values; the role may ask to be run again."""
    reconcile(report(), objects=[NUMBERS])
    outcome = reconcile(report(title="Daily", again="5m"))
    (changed,) = outcome.changed
    assert repr(changed) == 'ConfigMap/weekly (data.title: "Weekly" -> "Daily")'
    assert outcome.changed("ConfigMap", "weekly")["data"]["title"] == "Daily"
    assert outcome.requeue_after == timedelta(minutes=5)


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_the_role_writes_with_every_policy_of_drift(reconcile: Reconcile, policy: str) -> None:
    """Otherwise a role that is not idempotent would change nothing in its second reconcile."""
    metadata = {"name": "weekly", "annotations": {"operator-runner.dev/drift": policy}}
    reconcile({**report(), "metadata": metadata}, objects=[NUMBERS])
    others = {**NUMBERS, "data": {"numbers": "4"}}
    outcome = reconcile({**report(), "metadata": metadata}, objects=[others])
    assert outcome.changed("ConfigMap", "weekly")["data"]["numbers"] == "4"


def test_a_failure_names_task_file_and_reason(reconcile: Reconcile) -> None:
    """Also in the representation, which pytest shows for `assert outcome.successful`."""
    outcome = reconcile(report())
    assert not outcome.successful
    assert outcome.failure is not None
    assert outcome.failure.task == "Check that there are numbers"
    assert outcome.failure.path.startswith("roles/report/tasks/main.yml:")
    assert "The ConfigMap numbers does not exist" in outcome.failure.message
    assert repr(outcome).startswith("<Report/weekly failed: task 'Check that there are")
    assert outcome.condition("Failure")["status"] == "True"
    with pytest.raises(AssertionError, match="Report/weekly has no condition Ready"):
        outcome.condition("Ready")
    with pytest.raises(AssertionError, match="ConfigMap/weekly was not created by Report/weekly"):
        outcome.created("ConfigMap", "weekly")


def test_reports_do_not_show_secrets(reconcile: Reconcile) -> None:
    """A test can compare them all the same."""
    outcome = reconcile(report(password="hunter2"), objects=[NUMBERS])
    secret = outcome.created("Secret", "weekly")
    encoded = secret["data"]["password"]
    assert base64.b64decode(encoded) == b"hunter2"
    changed = reconcile(report(password="hunter3"))
    assert [each.name for each in changed.changed] == ["weekly"]
    for text in (repr(secret), repr(outcome), repr(changed), repr(changed.changed)):
        assert str(encoded) not in text
        assert "hunter" not in text
    assert "hunter" not in outcome.output + changed.output


def test_a_deletion_runs_the_finalizer(reconcile: Reconcile, kubectl: Kubectl) -> None:
    """Then the resource does not exist."""
    reconcile(report(), objects=[NUMBERS])
    outcome = reconcile.delete(report())
    assert outcome.successful
    assert outcome.created("ConfigMap", "farewell")["data"]["text"] == "weekly is gone"
    assert outcome.resource is None
    assert kubectl.get("reports.testing.example.com", "weekly") is None


def test_objects_may_have_a_status(reconcile: Reconcile, kubectl: Kubectl) -> None:
    """Controllers that do not run in a test are replaced by what they would report."""
    other = {**report(), "metadata": {"name": "other"}, "status": {"pages": 3}}
    assert reconcile(report(), objects=[NUMBERS, other]).successful
    found = kubectl.get("reports.testing.example.com", "other")
    assert found is not None
    assert found["status"] == {"pages": 3}


def test_a_refused_object_is_an_error(reconcile: Reconcile) -> None:
    """With the reason of the API server; the next reconcile works."""
    with pytest.raises(OperatorProcessError, match="title"):
        reconcile(report(title=7))
    with pytest.raises(OperatorProcessError, match="Kind=Wiki; the watches file has"):
        reconcile({"apiVersion": "v1", "kind": "Wiki", "metadata": {"name": "home"}})
    assert reconcile(report(), objects=[NUMBERS]).successful


def test_pods_can_be_created_in_a_new_namespace(kubectl: Kubectl) -> None:
    """A controller has created the service account, without which the API server refuses them."""
    assert kubectl.get("serviceaccount", "default") is not None
