"""An EtcdCluster takes one step in each run: the first one starts the first member."""

from __future__ import annotations

from typing import Any

from operator_runner.testing import Reconcile


def cluster(**spec: Any) -> dict[str, Any]:
    """Return an EtcdCluster."""
    return {
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "example"},
        "spec": {"size": 3, "version": "3.6.8", **spec},
    }


def test_a_cluster_begins_with_one_member(reconcile: Reconcile) -> None:
    """The others join when it is ready, so the next run changes nothing."""
    outcome = reconcile(cluster())
    assert outcome.successful
    services = sorted(each.name for each in outcome.created if each.kind == "Service")
    assert services == ["example", "example-client"]
    (pod,) = [each for each in outcome.created if each.kind == "Pod"]
    assert pod.body["spec"]["containers"][0]["image"].endswith("v3.6.8")
    assert outcome.status["members"] == {"ready": [], "unready": [pod.name]}

    again = reconcile(cluster())
    assert (again.created, again.changed, again.deleted) == ([], [], [])


def test_a_paused_cluster_is_left_alone(reconcile: Reconcile) -> None:
    """No member is started."""
    outcome = reconcile(cluster(paused=True))
    assert [each for each in outcome.created if each.kind == "Pod"] == []
    assert outcome.status["controlPaused"] is True
