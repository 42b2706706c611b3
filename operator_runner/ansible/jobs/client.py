"""The Jobs of runs in the cluster: requests, which of them are expected, and why they fail."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operator_runner.ansible.jobs.manifest import UID_LABEL
from operator_runner.core.errors import Conflict, NotFound
from operator_runner.core.fencing import Fence
from operator_runner.core.model import Json, ObjectRef
from operator_runner.kube.api import Api

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class JobClient:
    """Access to the Jobs in one namespace. Every method raises ApiError."""

    api: Api
    namespace: str

    async def create_job(self, body: Json, fence: Fence) -> Json:
        """Create a Job."""
        return await self.api.request("POST", self._path("jobs"), body=body, fence=fence)

    async def create_secret(self, body: Json, fence: Fence) -> None:
        """Create the Secret of a Job."""
        await self.api.request("POST", self._path("secrets"), body=body, fence=fence)

    async def jobs(self) -> list[Json]:
        """Return the Jobs for all resources."""
        return await self._jobs(UID_LABEL)

    async def jobs_of(self, uid: str) -> list[Json]:
        """Return the Jobs for the resource with this uid."""
        return await self._jobs(f"{UID_LABEL}={uid}")

    async def _jobs(self, selector: str) -> list[Json]:
        params = {"labelSelector": selector}
        answer = await self.api.request("GET", self._path("jobs"), params=params, outer_levels=2)
        return list(answer.get("items") or ())

    async def job(self, name: str) -> Json | None:
        """Return a Job, None if it does not exist."""
        with contextlib.suppress(NotFound):
            return await self.api.request("GET", self._path("jobs", name))
        return None

    async def pods_of(self, job: str) -> list[Json]:
        """Return the Pods of a Job."""
        params = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        answer = await self.api.request("GET", self._path("pods"), params=params, outer_levels=2)
        return list(answer.get("items") or ())

    async def token(self, job: Json) -> str | None:
        """Return the token of a Job's run; None if its Secret does not exist or is another's."""
        return (await self.files(job)).get("token", b"").decode() or None

    async def files(self, job: Json) -> dict[str, bytes]:
        """Return the files of a Job's Secret; none if it does not exist or is another's."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        try:
            body = await self.api.request("GET", self._path("secrets", name))
        except NotFound:
            return {}
        owners = body["metadata"].get("ownerReferences") or ()
        if all(owner.get("uid") != uid for owner in owners):
            return {}
        data = body.get("data") or {}
        return {name: base64.b64decode(content or "") for name, content in data.items()}

    async def delete_secret(self, name: str, fence: Fence) -> None:
        """Delete the Secret of a Job, if it exists."""
        with contextlib.suppress(NotFound):
            await self.api.request("DELETE", self._path("secrets", name), fence=fence)

    async def delete_job(self, job: Json, fence: Fence) -> None:
        """Delete a Job and wait until its Pods are gone; another of the name is left alone."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        # Foreground: the Job exists until its Pods have ended.
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        with contextlib.suppress(NotFound, Conflict):
            await self.api.request("DELETE", self._path("jobs", name), body=options, fence=fence)
        while await self._exists(name, uid):  # noqa: ASYNC110 (what is awaited is in the cluster)
            await asyncio.sleep(_POLL_SECONDS)

    async def _exists(self, name: str, uid: str) -> bool:
        found = await self.job(name)
        return found is not None and bool(found["metadata"]["uid"] == uid)

    def _path(self, resource: str, name: str = "") -> str:
        group = "/apis/batch/v1" if resource == "jobs" else "/api/v1"
        collection = f"{group}/namespaces/{self.namespace}/{resource}"
        return f"{collection}/{name}" if name else collection


@dataclass(frozen=True, slots=True)
class ExpectedJob:
    """A Job that a run of its resource may adopt."""

    client: JobClient
    job: Json
    token: str
    ref: ObjectRef
    """Its resource, which may have been deleted, or created again with another uid."""

    @property
    def name(self) -> str:
        """The name of the Job."""
        return str(self.job["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The uid of its resource."""
        return str(self.job["metadata"]["labels"][UID_LABEL])


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
