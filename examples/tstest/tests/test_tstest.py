"""A TsTest is a Deployment, or Jobs at times."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile


def tstest(**spec: Any) -> dict[str, Any]:
    """Return a TsTest."""
    return {
        "apiVersion": "stable.example.com/v1",
        "kind": "TsTest",
        "metadata": {"name": "web"},
        "spec": {"image": "example.com/web:1", "replicas": 2, **spec},
    }


def test_a_tstest_is_a_deployment(reconcile: Reconcile) -> None:
    """It has the image and the replicas, and the next run changes nothing."""
    outcome = reconcile(tstest())
    assert outcome.successful
    deployment = outcome.created("Deployment", "web")
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/web:1"
    assert outcome.condition("Successful")["status"] == "True"

    again = reconcile(tstest())
    assert again.successful
    assert (again.created, again.changed, again.deleted) == ([], [], [])


def test_an_edit_scales_the_deployment(reconcile: Reconcile) -> None:
    """Nothing else is changed."""
    reconcile(tstest())
    outcome = reconcile(tstest(replicas=3))
    (deployment,) = outcome.changed
    assert [each.path for each in deployment.differences] == ["spec.replicas"]


def test_a_schedule_replaces_the_deployment(reconcile: Reconcile) -> None:
    """The Deployment is deleted; the status has the next tick."""
    reconcile(tstest())
    outcome = reconcile(tstest(cronSpec="0 5 1 1 *"))
    assert outcome.deleted("Deployment", "web")
    assert outcome.created == []
    assert outcome.status["nextScheduleTime"].endswith("-01-01T05:00:00Z")


def test_a_deletion_needs_no_run(reconcile: Reconcile) -> None:
    """There is no finalizer: the garbage collector deletes the Deployment."""
    reconcile(tstest())
    outcome = reconcile.delete(tstest())
    assert outcome.successful
    assert outcome.resource is None
    assert outcome.tasks == ()
