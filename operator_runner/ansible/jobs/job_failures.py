"""Find out why the Job of a run reports no result. Pure: objects of the API are arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from operator_runner.core.model import Json

_UNSTARTABLE = {"InvalidImageName", "ErrImageNeverPull"}
"""Reasons of waiting containers that do not disappear by themselves."""


def failure_reason(job: Json | None, pods: Sequence[Json]) -> str | None:
    """Return why a Job reports no result, None while it may. `job` is None if it is deleted."""
    if job is None or job["metadata"].get("deletionTimestamp"):
        return "; ".join(["the Job was deleted before the run ended", *_pod_failures(pods)])
    for condition in conditions(job):
        if condition["status"] == "True" and condition["type"] in {"Failed", "Complete"}:
            reasons = [*_pod_failures(pods)] if pods else [*_deletion(condition)]
            return "; ".join([_condition_text(condition), *reasons])
    for pod in pods:
        for waiting in _waiting(pod):
            if waiting.get("reason") in _UNSTARTABLE:
                return f"the Pod cannot start: {_text(waiting)}"
    return None


def start_problem(pods: Iterable[Json]) -> str | None:
    """Return why the Pod of a Job has not started yet, None if no reason is known."""
    for pod in pods:
        for waiting in _waiting(pod):
            if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
                return _text(waiting)
        for condition in conditions(pod):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return _text(condition)
    return None


def is_finished(job: Json) -> bool:
    """Return whether a Job has ended, by itself or because it is being deleted."""
    ended = {"Failed", "Complete"}
    return bool(job["metadata"].get("deletionTimestamp")) or any(
        each["type"] in ended and each["status"] == "True" for each in conditions(job)
    )


def has_started(pods: Iterable[Json]) -> bool:
    """Return whether a container of a Job has started, so that it had the Secret of the Job."""
    return any((pod.get("status") or {}).get("phase", "Pending") != "Pending" for pod in pods)


def conditions(body: Mapping[str, Any]) -> list[Json]:
    """Return the conditions of an object."""
    return list((body.get("status") or {}).get("conditions") or ())


def _condition_text(condition: Json) -> str:
    if condition["type"] == "Complete":
        return "the Job ended without the result of the run"
    return f"the Job failed: {_text(condition)}"


def _deletion(condition: Json) -> Iterator[str]:
    """Yield why a failed Job has no Pod: one that fails by itself is kept."""
    if condition.get("reason") == "BackoffLimitExceeded":
        yield "its Pod was deleted: it was evicted, or its node does not exist any more"


def _pod_failures(pods: Iterable[Json]) -> Iterator[str]:
    """Yield the reasons for the end of Pods: evicted, node lost, out of memory."""
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("reason"):
            yield f"Pod {pod['metadata']['name']}: {_text(status)}"
        for condition in conditions(pod):
            if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
                yield f"Pod {pod['metadata']['name']}: {_text(condition)}"
        for container in status.get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode"):
                reason = ended.get("reason") or "Error"
                yield f"container {container['name']}: {reason}, exit code {ended['exitCode']}"


def _waiting(pod: Json) -> Iterator[Json]:
    status = pod.get("status") or {}
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        yield (container.get("state") or {}).get("waiting") or {}


def _text(reason: Mapping[str, Any]) -> str:
    return ": ".join(str(reason[key]) for key in ("reason", "message") if reason.get(key))
