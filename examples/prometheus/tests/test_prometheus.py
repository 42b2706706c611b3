"""A Prometheus is a StatefulSet with a configuration from monitors and rules."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile


def monitoring(kind: str, version: str = "v1", **spec: Any) -> dict[str, Any]:
    """Return a resource of this kind."""
    return {
        "apiVersion": f"monitoring.coreos.com/{version}",
        "kind": kind,
        "metadata": {"name": "main"},
        "spec": spec,
    }


def test_an_alertmanager_is_a_stateful_set(reconcile: Reconcile) -> None:
    """It has the replicas, and the next run changes nothing."""
    outcome = reconcile(monitoring("Alertmanager", replicas=2))
    assert outcome.successful
    assert outcome.created("StatefulSet", "alertmanager-main")["spec"]["replicas"] == 2

    again = reconcile(monitoring("Alertmanager", replicas=2))
    assert (again.created, again.changed, again.deleted) == ([], [], [])


def test_an_unsupported_kind_says_so(reconcile: Reconcile) -> None:
    """Its condition has the reason."""
    outcome = reconcile(monitoring("ThanosRuler", image="example.com/thanos:1"))
    assert outcome.failure is not None
    assert outcome.condition("Reconciled")["reason"] == "NotSupported"
