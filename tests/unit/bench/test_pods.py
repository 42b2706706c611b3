"""Pods of a control plane without nodes: when they become ready, or succeed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bench.pods import next_status

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _pod(phase: str = "Pending", *, age: float = 60, owner: str = "ReplicaSet") -> dict[str, Any]:
    return {
        "metadata": {
            "name": "a",
            "creationTimestamp": (_NOW - timedelta(seconds=age)).isoformat(),
            "ownerReferences": [{"kind": owner}],
        },
        "spec": {
            "initContainers": [{"name": "init", "image": "i"}],
            "containers": [{"name": "app", "image": "i"}],
        },
        "status": {"phase": phase},
    }


def test_a_pending_pod_becomes_ready_after_some_seconds() -> None:
    """One that runs or is new stays as it is."""
    status = next_status(_pod(), _NOW, "10.0.0.1")
    assert status is not None
    assert (status["phase"], status["podIP"]) == ("Running", "10.0.0.1")
    assert {each["status"] for each in status["conditions"]} == {"True"}
    assert status["containerStatuses"][0]["ready"]
    assert "terminated" in status["initContainerStatuses"][0]["state"]
    assert next_status(_pod(age=1), _NOW, "10.0.0.1") is None
    assert next_status(_pod("Running"), _NOW, "10.0.0.1") is None


def test_a_pod_of_a_job_succeeds() -> None:
    """It is not ready then."""
    status = next_status(_pod(owner="Job"), _NOW, "10.0.0.1")
    assert status is not None
    assert status["phase"] == "Succeeded"
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "False"
    assert "terminated" in status["containerStatuses"][0]["state"]
