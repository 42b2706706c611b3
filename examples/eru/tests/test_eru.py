"""An Eru restarts a Deployment by a schedule; an annotation of the Deployment makes one."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile


def deployment(**annotations: str) -> dict[str, Any]:
    """Return a Deployment."""
    labels = {"app": "web"}
    container = {"name": "web", "image": "example.com/web:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def eru() -> dict[str, Any]:
    """Return an Eru of this Deployment."""
    return {
        "apiVersion": "mtsre.meitu.com/v1",
        "kind": "Eru",
        "metadata": {"name": "nightly"},
        "spec": {"deploymentName": "web", "schedule": "30 3 1 1 *"},
    }


def test_an_annotated_deployment_gets_an_eru(reconcile: Reconcile) -> None:
    """With the schedule of the annotation; the next run changes nothing."""
    annotations = {"mtsre.meitu.com/eru": "true", "mtsre.meitu.com/eru-schedule": "30 3 1 1 *"}
    outcome = reconcile(deployment(**annotations))
    assert outcome.successful
    assert outcome.created("Eru", "web")["spec"]["schedule"] == "30 3 1 1 *"

    again = reconcile(deployment(**annotations))
    assert (again.created, again.changed, again.deleted) == ([], [], [])


def test_an_eru_reports_whether_its_deployment_exists(reconcile: Reconcile) -> None:
    """The status has the next restart too."""
    outcome = reconcile(eru())
    assert outcome.condition("Bound")["reason"] == "DeploymentNotFound"
    assert outcome.status["nextScheduleTime"].endswith("-01-01T03:30:00Z")

    found = reconcile(eru(), objects=[deployment()])
    assert found.condition("Bound")["status"] == "True"
