"""Requests for Jobs, their Pods and their Secrets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass

from operator_runner.ansible.jobs.manifest import UID_LABEL
from operator_runner.core.errors import Conflict, NotFound
from operator_runner.core.fencing import Fence
from operator_runner.core.model import Json
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
