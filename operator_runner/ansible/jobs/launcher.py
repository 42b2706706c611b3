"""The launcher of Jobs: each run is a Kubernetes Job whose plays use the operator's proxy."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from operator_runner.ansible.jobs import manifest, worker
from operator_runner.ansible.jobs.channel import RunChannel, Transmission, write_transmission
from operator_runner.ansible.jobs.client import (
    ExpectedJob,
    JobClient,
    failure_reason,
    has_started,
    is_finished,
    start_problem,
)
from operator_runner.ansible.jobs.server import JobServer
from operator_runner.ansible.rundir import RunDir
from operator_runner.core.async_tasks import end_tasks, finish_in_thread
from operator_runner.core.errors import ApiError, Fenced, RunError
from operator_runner.core.fencing import Fence, Fences, LeaseTerm
from operator_runner.core.model import GVK, JobTemplate, Json, ObjectRef, RunRequest, Watch
from operator_runner.core.settings import AnsibleSettings

_CHECK_SECONDS = 2.0
"""Interval of reads of the Job and its Pod."""
_START_SECONDS = 600.0
"""Time limit for the Pod to be scheduled and to connect."""
_FLUSH_SECONDS = 2.0
"""Wait for output that is in flight when the Job has ended."""
_ADOPTION_SECONDS = 3600.0
"""Time limit for the adoption of Jobs without a deadline; their Pods give up after it too."""
_END_SECONDS = 60.0
"""Time limit for the end of a Pod; on a lost node it does not end."""
_KEPT_SECONDS = 600.0
"""Time for Kubernetes to mark a Job as finished after its run has reported its end."""

_log = structlog.get_logger(__name__)


class JobLauncher:
    """Starts runs as Kubernetes Jobs; the request has the template."""

    def __init__(
        self,
        server: JobServer,
        client: Callable[[str], JobClient],
        ansible: AnsibleSettings,
        fences: Fences,
        *,
        on_adopted: Callable[[ObjectRef], None] = lambda _: None,
        may_start: Callable[[str], bool] = lambda _: True,
        term_of: Callable[[str], LeaseTerm | None] = lambda _: None,
    ) -> None:
        """`client` returns the client for a namespace, which is empty for the operator's own.

        `on_adopted` is called with the resource of each adopted run that has succeeded: changes
        while no operator ran, as of a Secret that the role reads, may have led to no run.
        `may_start` returns whether this replica starts the runs of the resource with a uid: it
        leaves the Jobs of others when their runs are cancelled. `term_of` returns the term that
        covers the resource with a uid, None without leader election.
        """
        self._server = server
        self._client = client
        self._ansible = ansible
        self._fences = fences
        self._on_adopted = on_adopted
        self._may_start = may_start
        self._term_of = term_of
        self._expected: dict[str, ExpectedJob] = {}
        """Jobs that runs of their resources may adopt, by the uid of the Job."""
        self._is_leaving = False
        self._ended: set[str] = set()
        """Uids of Jobs whose runs have reported their end, although they may still be active."""
        self.adoptable: list[ObjectRef] = []
        """Possible resources of expected Jobs, which are to be reconciled first."""

    def leave(self) -> None:
        """From now on, do not delete the Jobs of cancelled runs: the next operator adopts them."""
        self._is_leaving = True

    async def expect_adoptions(
        self, watches: Iterable[Watch], is_mine: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Have the server expect the Jobs of earlier runs that still run. Raises ApiError.

        Only those of resources whose uid `is_mine` accepts.
        """
        gvks: dict[str, list[GVK]] = {}
        for watch in watches:
            if watch.job is not None:
                gvks.setdefault(watch.job.namespace, []).append(watch.gvk)
        self.adoptable.clear()
        for namespace, kinds in gvks.items():
            client = self._client(namespace)
            for job in await client.jobs():
                uid = job["metadata"]["labels"][manifest.UID_LABEL]
                if is_finished(job) or not is_mine(uid):
                    continue
                files = await client.files(job)
                if not files.get("token") or not is_mine(uid):
                    continue
                token, refs = files["token"].decode(), manifest.resources_of(job, kinds)
                seconds = job["spec"].get("activeDeadlineSeconds") or _ADOPTION_SECONDS
                self._server.expect(token, uid, seconds)
                self.adoptable += refs
                if len(refs) == 1 and self._is_own(files):
                    expected = ExpectedJob(client, job, token, refs[0])
                    self._expected[job["metadata"]["uid"]] = expected

    def _is_own(self, files: Mapping[str, bytes]) -> bool:
        """Return whether the Pod with these files connects to this operator."""
        settings, address = json.loads(files.get("settings.json", b"{}")), self._server.address
        return (settings.get("host"), settings.get("port")) == (address.host, address.port)

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Leave the expected Jobs of resources, by uid, to another replica."""
        self._take(lambda each: is_lost(each.uid))
        self._server.forget(is_lost)

    async def end_unadopted(self, ref: ObjectRef, current: str) -> None:
        """Delete the Jobs of an earlier operator that no run adopts.

        Those of the resource with the uid `current` are kept for its next run.
        """
        for each in self._take(lambda each: each.ref == ref and each.uid != current):
            fence = Fence(self._term_of(each.uid))
            if self._is_continued(each.uid, fence):
                continue
            _log.info("Deleting the Job of a resource without a run", job=each.name)
            self._server.refuse(each.token)
            await _delete(each.client, each.job, fence)

    def _take(self, is_chosen: Callable[[ExpectedJob], bool]) -> list[ExpectedJob]:
        """Return the expected Jobs that are chosen, and forget them."""
        chosen = [key for key, each in self._expected.items() if is_chosen(each)]
        return [self._expected.pop(key) for key in chosen]

    async def ready(self) -> None:
        """See `executor.Launcher`; the Pod loads Ansible itself."""

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[RunChannel]:
        """Start a Job or adopt one; leaving the block ends it. Raises RunError."""
        assert request.job is not None
        fence = self._fences.of(request.ref)
        transmission = await finish_in_thread(write_transmission, request, rundir, self._ansible)
        client = self._client(request.job.namespace)
        channel = RunChannel(transmission.file)
        try:
            job, token, channel.is_adopted = await self._provide(
                client, request, transmission, fence
            )
        except ApiError as error:
            raise RunError(
                f"cannot start a Job in namespace {client.namespace}: {error}; "
                "check the namespace, its quota, and the permissions with `operator-runner rbac`"
            ) from error
        self._take(lambda each: each.uid == request.uid)

        def is_left() -> bool:
            has_ended = channel.is_complete or bool(channel.fault)
            return not has_ended and self._is_continued(request.uid, fence)

        try:
            with self._server.attach(request.run_id, token, channel, is_left):
                watching = asyncio.create_task(_watch(client, job, channel), name="watch of a Job")
                try:
                    yield channel
                finally:
                    await end_tasks([watching])
            if channel.is_adopted and channel.is_complete and channel.result() == 0:
                self._on_adopted(request.ref)
        finally:
            await self._end(client, job, channel, fence, is_left=is_left())

    def _is_continued(self, uid: str, fence: Fence) -> bool:
        """Return whether another operator, or this one after a restart, continues the Job."""
        try:
            fence.check()
        except Fenced:
            return True
        return self._is_leaving or not self._may_start(uid)

    async def _provide(
        self, client: JobClient, request: RunRequest, transmission: Transmission, fence: Fence
    ) -> tuple[Json, str, bool]:
        """Return the Job of a run, its token, and whether it was adopted. Raises ApiError."""
        assert request.job is not None
        state = _state(request, request.job, transmission.digest)
        for job in await client.jobs_of(request.uid):
            if is_finished(job) or job["metadata"]["uid"] in self._ended:
                continue
            name, annotations = job["metadata"]["name"], job["metadata"].get("annotations") or {}
            token = await client.token(job)
            if token is None and await _ends_by_itself(client, job):
                continue
            if token is not None and annotations.get(manifest.STATE_ANNOTATION) == state:
                _log.info("Adopted the Job of an earlier run", job=name)
                return job, token, True
            _log.info("Deleting outdated Job", job=name)
            if token is not None:
                self._server.refuse(token)
            await _delete(client, job, fence)
        run = manifest.JobRun(request.ref, request.uid, request.run_id, state, request.timeout)
        return *await self._create(client, run, request.job, fence), False

    async def _create(
        self, client: JobClient, run: manifest.JobRun, template: JobTemplate, fence: Fence
    ) -> tuple[Json, str]:
        token = secrets.token_urlsafe(32)
        address = self._server.address
        settings = {
            "host": address.host,
            "port": address.port,
            "namespace": run.ref.namespace or "default",
        }
        if self._server.is_sharded:
            settings["uid"] = run.uid
        job = await client.create_job(manifest.job(run, template), fence)
        files = {
            "token": token.encode(),
            "ca.crt": self._server.authorities,
            "settings.json": json.dumps(settings).encode(),
            "worker.py": Path(worker.__file__).read_bytes(),  # noqa: ASYNC240 (a small local file)
        }
        try:
            # The Pod waits for it. A Job without it is not adopted.
            await client.create_secret(manifest.secret(job, files), fence)
        except BaseException:
            await _delete(client, job, fence)
            raise
        _log.info("Created Job", job=job["metadata"]["name"], job_namespace=client.namespace)
        return job, token

    async def _end(
        self, client: JobClient, job: Json, channel: RunChannel, fence: Fence, *, is_left: bool
    ) -> None:
        """Delete the Job of a cancelled run; one that has ended is kept for its `ttl`."""
        if channel.is_complete:
            uid = job["metadata"]["uid"]
            self._ended.add(uid)
            asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._ended.discard, uid)
        if channel.is_complete or channel.fault:
            try:
                await client.delete_secret(job["metadata"]["name"], fence)
            except ApiError as error:
                _log.warning("Cannot delete the Secret of the Job", error=str(error))
        elif is_left:
            _log.info("Left the Job to the next owner of its resource", job=job["metadata"]["name"])
        else:
            await _delete(client, job, fence)


async def _ends_by_itself(client: JobClient, job: Json) -> bool:
    """Wait until a Job without a Secret has finished; return whether it is to be kept.

    The Secret is deleted when the run has reported its end, here to an operator that was killed
    after that. Without a Pod that has started, the Secret was never created.
    """
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    if not has_started(await client.pods_of(name)):
        return False
    _log.info("Waiting for the end of a Job whose run has ended", job=name)
    end = asyncio.get_running_loop().time() + _END_SECONDS
    while asyncio.get_running_loop().time() < end:
        found = await client.job(name)
        if found is None or found["metadata"]["uid"] != uid or is_finished(found):
            return True
        await asyncio.sleep(_CHECK_SECONDS)
    return False


async def _delete(client: JobClient, job: Json, fence: Fence) -> None:
    """Delete a Job and wait for its Pod, within limits; problems are logged."""
    name = job["metadata"]["name"]
    try:
        async with asyncio.timeout(_END_SECONDS):
            await client.delete_job(job, fence)
    except TimeoutError:
        # Its token is not valid any more, so it cannot write to the cluster.
        _log.warning(
            "Pod of a deleted Job has not ended",
            job=name,
            seconds=_END_SECONDS,
            hint="delete the Pod with --force if its node is gone",
        )
    except ApiError as error:
        _log.warning("Cannot delete Job", job=name, error=str(error))


async def _watch(client: JobClient, job: Json, channel: RunChannel) -> None:
    """End the channel if the Job is lost: evicted, deleted, out of memory, never started."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    loop = asyncio.get_running_loop()
    begin, reported = loop.time(), ""
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        try:
            found = await client.job(name)
            if found is not None and found["metadata"]["uid"] != uid:
                found = None
            has_ended = found is None or is_finished(found)
            pods = [] if channel.has_contact and not has_ended else await client.pods_of(name)
        except ApiError as error:
            _log.debug("Cannot read Job", job=name, error=str(error))
            continue
        if fault := failure_reason(found, pods):
            await asyncio.sleep(_FLUSH_SECONDS)
            channel.fail(f"Job {name}: {fault}")
            return
        problem = None if channel.has_contact else start_problem(pods)
        if not channel.has_contact and loop.time() - begin > _START_SECONDS:
            reason = problem or "unknown reason; see the events of the Pod"
            channel.fail(f"Job {name}: the Pod did not start within {_START_SECONDS:g} s: {reason}")
            return
        if problem is not None and problem != reported:
            _log.warning("Pod has not started", job=name, reason=problem)
            reported = problem


def _state(request: RunRequest, template: JobTemplate, digest: str) -> str:
    parts = [request.state_key, manifest.template_digest(template), digest]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
