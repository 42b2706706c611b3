"""Reasons why a Job reports no result."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.ansible.jobs.client import failure_reason, is_finished, start_problem
from operator_runner.core.model import Json


def body(name: str = "a", **status: Any) -> Json:
    return {"metadata": {"name": name}, "status": status}


def condition(kind: str, reason: str, message: str, status: str = "True") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def container(**state: Any) -> Json:
    return {"name": "run", "state": state}


FAILED = body(conditions=[condition("Failed", "BackoffLimitExceeded", "limit reached")])
LIMIT_REACHED = "the Job failed: BackoffLimitExceeded: limit reached"
CAUSES = "it was evicted, or its node does not exist any more"
RUNNING = body(active=1)


@pytest.mark.parametrize(
    ("job", "pod", "expected"),
    [
        (RUNNING, body(phase="Running"), None),
        (RUNNING, body(containerStatuses=[container(waiting={"reason": "ErrImagePull"})]), None),
        (None, body(phase="Running"), "the Job was deleted before the run ended"),
        (
            FAILED,
            body(phase="Failed", reason="Evicted", message="low on memory"),
            f"{LIMIT_REACHED}; Pod a: Evicted: low on memory",
        ),
        (
            FAILED,
            body(conditions=[condition("DisruptionTarget", "DeletionByTaintManager", "node gone")]),
            f"{LIMIT_REACHED}; Pod a: DeletionByTaintManager: node gone",
        ),
        (
            FAILED,
            body(
                containerStatuses=[container(terminated={"reason": "OOMKilled", "exitCode": 137})]
            ),
            f"{LIMIT_REACHED}; container run: OOMKilled, exit code 137",
        ),
        (
            body(conditions=[condition("Failed", "DeadlineExceeded", "too long")]),
            body(),
            "the Job failed: DeadlineExceeded: too long",
        ),
        (
            body(conditions=[condition("Complete", "", "")]),
            body(phase="Succeeded"),
            "the Job ended without the result of the run",
        ),
        (
            RUNNING,
            body(containerStatuses=[container(waiting={"reason": "InvalidImageName"})]),
            "the Pod cannot start: InvalidImageName",
        ),
    ],
    ids=[
        "running",
        "image may come",
        "deleted",
        "evicted",
        "node gone",
        "out of memory",
        "deadline",
        "without result",
        "invalid image",
    ],
)
def test_a_lost_job_has_the_reasons_of_kubernetes(
    job: Json | None, pod: Json, expected: str | None
) -> None:
    """Condition of the Job, status of the Pod, and state of the container."""
    assert failure_reason(job, [pod]) == expected


def test_a_failed_job_without_a_pod_has_lost_it() -> None:
    """Its Pod was deleted; one that fails by itself is kept, unless its deadline has passed."""
    assert failure_reason(FAILED, []) == f"{LIMIT_REACHED}; its Pod was deleted: {CAUSES}"
    late = body(conditions=[condition("Failed", "DeadlineExceeded", "too long")])
    assert failure_reason(late, []) == "the Job failed: DeadlineExceeded: too long"


def test_a_pod_that_has_not_started_has_a_reason() -> None:
    """Its containers wait, or no node fits; while a container is created there is none."""
    pending = condition("PodScheduled", "Unschedulable", "0/1 nodes", "False")
    assert start_problem([body(conditions=[pending])]) == "Unschedulable: 0/1 nodes"
    pulling = container(waiting={"reason": "ImagePullBackOff", "message": "Back-off"})
    assert start_problem([body(containerStatuses=[pulling])]) == "ImagePullBackOff: Back-off"
    creating = container(waiting={"reason": "ContainerCreating"})
    assert start_problem([body(containerStatuses=[creating])]) is None


def test_a_job_that_is_being_deleted_is_finished() -> None:
    """It is not adopted."""
    assert is_finished(FAILED)
    assert not is_finished(RUNNING)
    assert is_finished({"metadata": {"name": "a", "deletionTimestamp": "now"}})
