"""The Lease of this replica as a member of the shards. See docs/adr/0035-shards.md.

Unlike the leader Lease it has one holder in its life: once it is deleted, membership is lost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

import structlog

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.fencing import LeaseTimes, Tenure
from operator_runner.core.model import Json
from operator_runner.core.settings import LeaderElection
from operator_runner.core.sharding import Member, Report, encode_report
from operator_runner.kube.api import Api
from operator_runner.kube.leader_election import claimed_spec, epoch_of
from operator_runner.kube.shard_leases import LEASE, REPORT, lease_of_member, shard_labels

_RETRIES_PER_DEADLINE = 5
"""Renew deadline divided by retry period, as for the leader Lease."""
_RELEASE_TIMEOUT_SECONDS = 5.0
"""The process is about to exit."""

_log = structlog.get_logger(__name__)


class Membership:
    """Keeps the Lease of a member, with its report."""

    def __init__(self, api: Api, election: LeaderElection, namespace: str, member: Member) -> None:
        """Prepare the Lease of `member` beside that of `election`."""
        self._api = api
        self._member = member
        self._namespace = namespace
        self._leader_lease = election.lease_name
        self.name = lease_of_member(election.lease_name, member)
        self._collection = f"/apis/{LEASE.api_version}/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{self.name}"
        self._duration = math.ceil(election.lease_duration.total_seconds())
        self._deadline = election.renew_deadline.total_seconds()
        self._retry = self._deadline / _RETRIES_PER_DEADLINE
        self.tenure = Tenure(f"{namespace}/{self.name}", LeaseTimes(self._duration, self._deadline))
        self._report: Callable[[], Report] = Report
        self._lease: Json = {}
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._renew_task: asyncio.Task[None] | None = None
        self._failures = Deduplicator()

    @property
    def seconds(self) -> float:
        """Seconds after a renewal at which the Lease expires."""
        return self._duration

    async def join(self, report: Callable[[], Report]) -> None:
        """Return once the Lease exists; it is then renewed in the background with the report.

        Errors are logged and retried without limit: missing permissions can be granted.
        """
        self._report = report
        while not await self._try(self._deadline):  # noqa: ASYNC110 requests, retried
            await asyncio.sleep(self._retry)
        _log.info("Joined the shards", lease=self.name, identity=self._member)
        self._renew_task = asyncio.create_task(self._renew(), name=f"renew lease {self.name}")

    def report_soon(self) -> None:
        """Renew the Lease with the present report, without waiting for the next period."""
        self._changed.set()

    async def lost(self) -> None:
        """Return when this replica is no longer a member: its writes are refused."""
        await self._lost.wait()

    async def leave(self) -> None:
        """Delete the Lease, so that the slots are free at once; call it after all work has ended.

        A failure is logged, and the Lease expires.
        """
        self.tenure.end()
        if self._renew_task is not None:
            self._renew_task.cancel()
            await asyncio.wait([self._renew_task])
            self._renew_task = None
        try:
            await self._api.request("DELETE", self._path, timeout=_RELEASE_TIMEOUT_SECONDS)
            _log.info("Left the shards", lease=self.name)
        except NotFound:
            pass
        except ApiError as error:
            _log.warning("Cannot delete the lease", lease=self.name, error=str(error))

    async def _renew(self) -> None:
        try:
            while (left := self._left()) > 0 and not self._lost.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(self._retry, left)):
                        await self._changed.wait()
                left = self._left()
                # A request that hangs gets at most half of it, so that another attempt is possible.
                await self._try(max(left / 2, min(left, self._retry)))
            _log.error("Lost membership of the shards", lease=self.name)
        finally:
            self.tenure.end()
            self._lost.set()

    def _left(self) -> float:
        return self._deadline - self.tenure.age

    async def _try(self, timeout: float) -> bool:  # noqa: ASYNC109 a failed attempt, not an error
        """Create or renew the Lease once; return whether that succeeded."""
        # From before the request: the coordinator counts from when it observes the result.
        started = self.tenure.now()
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout):
                self._lease = await self._write(timeout)
        except (ApiError, TimeoutError) as error:
            self._log_failure(error)
            return False
        self._failures.reset()
        self.tenure.extend(epoch_of(self._lease), started)
        return True

    async def _write(self, timeout: float) -> Json:  # noqa: ASYNC109 see _try
        if not self._lease:
            with suppress(Conflict):  # an attempt without a response was carried out
                return await self._api.request(
                    "POST", self._collection, body=self._body({}), timeout=timeout
                )
            self._lease = await self._api.request("GET", self._path, timeout=timeout)
        try:
            return await self._put(timeout)
        except Conflict:
            # A renewal without a response, or somebody else has written an annotation.
            self._lease = await self._read(timeout)
            return await self._put(timeout)
        except NotFound:
            self._lost.set()
            raise

    async def _put(self, timeout: float) -> Json:  # noqa: ASYNC109 see _try
        # The uid keeps the API server from creating a Lease that was deleted.
        body = self._body(self._lease)
        return await self._api.request("PUT", self._path, body=body, timeout=timeout)

    async def _read(self, timeout: float) -> Json:  # noqa: ASYNC109 see _try
        try:
            lease = await self._api.request("GET", self._path, timeout=timeout)
        except NotFound:
            self._lost.set()
            raise
        is_mine = lease["spec"].get("holderIdentity") == self._member
        if not is_mine or lease["metadata"]["uid"] != self._lease["metadata"]["uid"]:
            self._lost.set()
            raise Conflict(f"Lease {self.name}: it was replaced")
        return lease

    def _body(self, lease: Json) -> Json:
        metadata = {
            "name": self.name,
            "namespace": self._namespace,
            "labels": shard_labels(self._leader_lease),
            "annotations": {REPORT: encode_report(self._report())},
        }
        if lease:
            metadata |= {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": claimed_spec(lease.get("spec") or {}, self._member, self._duration),
        }

    def _log_failure(self, error: Exception) -> None:
        """Log a failure unless it is the same as the last one."""
        message = str(error) or "no response in time"
        if not self._failures.is_new(message):
            return
        if isinstance(error, Forbidden):
            _log.error(
                "Shards lack permissions; retrying",
                grant="get, list, watch, create, update and delete leases.coordination.k8s.io"
                f" in {self._namespace}",
                error=message,
            )
        else:
            _log.warning("Cannot renew the lease", lease=self.name, error=message)
