"""A KubeScheduler is a Deployment of kube-scheduler with the profile of the Scheduler."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile


def scheduler(profile: str) -> dict[str, Any]:
    """Return the Scheduler of the cluster."""
    return {
        "apiVersion": "config.openshift.io/v1",
        "kind": "Scheduler",
        "metadata": {"name": "cluster"},
        "spec": {"profile": profile},
    }


def kube_scheduler(state: str = "Managed") -> dict[str, Any]:
    """Return the KubeScheduler of the cluster."""
    return {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "KubeScheduler",
        "metadata": {"name": "cluster"},
        "spec": {"managementState": state},
    }


def test_the_profile_is_that_of_the_scheduler(reconcile: Reconcile) -> None:
    """The next run changes nothing, and a removed scheduler leaves no Deployment."""
    outcome = reconcile(kube_scheduler(), objects=[scheduler("HighNodeUtilization")])
    assert outcome.successful
    (deployment,) = [each for each in outcome.created if each.kind == "Deployment"]
    assert deployment.body["spec"]["replicas"] >= 1
    assert outcome.condition("Available")["status"] == "False"

    again = reconcile(kube_scheduler(), objects=[scheduler("HighNodeUtilization")])
    assert (again.created, again.changed, again.deleted) == ([], [], [])

    removed = reconcile(kube_scheduler("Removed"))
    assert removed.deleted("Deployment", deployment.name)
