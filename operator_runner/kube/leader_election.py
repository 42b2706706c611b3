"""Leader election with a Lease, by the rules of client-go. See ADR 0003 for the reasons.

The tenure of the Lease permits the writes of runs, see core/fencing.py.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, ConfigError, Conflict, Forbidden, NotFound
from operator_runner.core.fencing import Epoch, LeaseTimes, Tenure
from operator_runner.core.model import Json
from operator_runner.core.settings import LeaderElection
from operator_runner.kube.api import Api

_API_VERSION = "coordination.k8s.io/v1"
_RETRIES_PER_DEADLINE = 5
"""Renew deadline divided by retry period, as for client-go's defaults (10 s, 2 s)."""
_JITTER_FACTOR = 1.2
"""A waiting replica multiplies the retry period by a random factor of up to this."""
_RELEASE_ATTEMPTS = 3
_RELEASE_TIMEOUT_SECONDS = 5.0
"""For each request of a release: the process is about to exit."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ObservedLease:
    """The Lease's spec as last observed, and the local monotonic time of its last change.

    The times inside the Lease are never compared with the local clock: clocks differ.
    """

    spec: Json
    changed: float

    def update(self, spec: Json, now: float) -> None:
        """Record the current spec; the lease is extended only if the holder has changed it."""
        if spec != self.spec:
            self.spec, self.changed = spec, now

    def held_by_other(self, identity: str, now: float) -> bool:
        """Return whether another replica leads: it is the holder, and the lease is still valid."""
        holder = self.spec.get("holderIdentity")
        if not holder or holder == identity:
            return False
        return now < self.expiry

    @property
    def expiry(self) -> float:
        """Local monotonic time at which the lease expires, unless it is renewed."""
        duration: float = self.spec.get("leaseDurationSeconds") or 0
        return self.changed + duration


def claimed_spec(spec: Json, identity: str, seconds: int) -> Json:
    """Return the spec with which `identity` acquires or renews the lease."""
    now = _now()
    if spec.get("holderIdentity") == identity:
        return spec | {"leaseDurationSeconds": seconds, "renewTime": now}
    transitions = spec.get("leaseTransitions") or 0
    return spec | {
        "holderIdentity": identity,
        "leaseDurationSeconds": seconds,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": transitions + 1 if spec else 0,
    }


def epoch_of(lease: Json) -> Epoch:
    """Return the epoch of a held Lease."""
    return str(lease["metadata"]["uid"]), int(lease["spec"].get("leaseTransitions") or 0)


class LeaderElector:
    """Leader election of one replica."""

    def __init__(self, api: Api, election: LeaderElection, namespace: str) -> None:
        """Take part in the election of the Lease `namespace`/`election.lease_name`.

        Raises ConfigError for a missing name and invalid durations.
        """
        _check(election)
        self.identity = f"{socket.gethostname()}_{uuid4()}"
        self._api = api
        self._collection = f"/apis/{_API_VERSION}/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{election.lease_name}"
        self._name = election.lease_name
        self._namespace = namespace
        self._duration = math.ceil(election.lease_duration.total_seconds())
        self._deadline = election.renew_deadline.total_seconds()
        self.tenure = Tenure(
            f"{namespace}/{election.lease_name}", LeaseTimes(self._duration, self._deadline)
        )
        self._retry = self._deadline / _RETRIES_PER_DEADLINE
        self._observed = ObservedLease({}, time.monotonic())
        self._lost = asyncio.Event()
        self._renew_task: asyncio.Task[None] | None = None
        self._failures = Deduplicator()

    async def acquire(self) -> None:
        """Return once this replica leads; the Lease is then renewed in the background.

        Errors are logged and retried without limit: missing permissions can be granted.
        """
        self._lost.clear()
        waiting_for = ""
        while not await self._try(self._deadline):
            holder = self._observed.spec.get("holderIdentity") or ""
            if holder != waiting_for:
                _log.info(
                    "Waiting for the leader to release the lease", lease=self._name, leader=holder
                )
                waiting_for = holder
            await asyncio.sleep(self._seconds_to_next_attempt())
        _log.info("Became the leader", lease=self._name, identity=self.identity)
        self._renew_task = asyncio.create_task(self._renew(), name=f"renew lease {self._name}")

    def _seconds_to_next_attempt(self) -> float:
        """Return the retry period, or less: a lease that expires before is acquired at once."""
        period = self._retry * random.uniform(1, _JITTER_FACTOR)  # noqa: S311 not for security
        left = self._observed.expiry - time.monotonic()
        return min(period, left) if left > 0 else period

    async def lost(self) -> None:
        """Return when this replica no longer leads.

        At the latest the renew deadline after the last renewal, even if the API server hangs;
        other replicas wait for the lease duration, which is longer.
        """
        await self._lost.wait()

    async def release(self) -> None:
        """Release the Lease, so that another replica need not wait until it expires.

        Call it after all work of the leader has ended. Does nothing if another replica holds
        the Lease; a failure is logged, and the Lease expires. Further writes are refused.
        """
        self.tenure.end()
        if self._renew_task is not None:
            self._renew_task.cancel()
            await asyncio.wait([self._renew_task])
            self._renew_task = None
        for _ in range(_RELEASE_ATTEMPTS):
            try:
                await self._release_lease()
            except Conflict:
                continue  # a cancelled renewal was carried out in between
            except NotFound:
                pass  # the Lease was deleted: it is free
            except ApiError as error:
                _log.warning("Cannot release the lease", lease=self._name, error=str(error))
            return

    async def _release_lease(self) -> None:
        # Read first: a cancelled renewal may have been carried out.
        lease = await self._api.request("GET", self._path, timeout=_RELEASE_TIMEOUT_SECONDS)
        spec = lease["spec"]
        if spec.get("holderIdentity") != self.identity:
            return
        now = _now()
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        lease["spec"] = spec | freed | {"acquireTime": now}
        await self._api.request("PUT", self._path, body=lease, timeout=_RELEASE_TIMEOUT_SECONDS)
        _log.info("Released the lease", lease=self._name)

    async def _renew(self) -> None:
        """Renew until the renew deadline is exceeded or another replica holds the Lease."""
        try:
            while (left := self._left()) > 0:
                await asyncio.sleep(min(self._retry, left))
                left = self._left()
                # A request that hangs gets at most half of it, so that another attempt is possible.
                timeout = max(left / 2, min(left, self._retry))
                if not await self._try(timeout) and self._observed.held_by_other(
                    self.identity, time.monotonic()
                ):
                    break
            holder = self._observed.spec.get("holderIdentity")
            _log.error("Lost leadership", lease=self._name, holder=holder)
        finally:
            self.tenure.end()
            self._lost.set()

    def _left(self) -> float:
        return self._deadline - self.tenure.age

    async def _try(self, timeout: float) -> bool:  # noqa: ASYNC109 a failed attempt, not an error
        """Acquire or renew once; return whether this replica leads for another lease duration."""
        # From before the request: other replicas count from when they observe its result.
        started = self.tenure.now()
        try:
            async with asyncio.timeout(timeout):
                lease = await self._acquire_or_renew(timeout)
        except Conflict:
            return False  # another replica was faster; the next attempt reads its identity
        except (ApiError, TimeoutError) as error:
            self._log_failure(error)
            return False
        self._failures.reset()
        if lease is not None:
            self._extend(epoch_of(lease), started)
        return lease is not None

    def _extend(self, epoch: Epoch, sent: float) -> None:
        if self.tenure.epoch not in {None, epoch}:
            _log.warning(
                "Acquired the lease again: current runs may no longer write", lease=self._name
            )
        self.tenure.extend(epoch, sent)

    async def _acquire_or_renew(self, timeout: float) -> Json | None:  # noqa: ASYNC109 see _try
        """Return the Lease that this replica holds now, None if another one holds it."""
        try:
            lease = await self._api.request("GET", self._path, timeout=timeout)
        except NotFound:
            lease = {
                "apiVersion": _API_VERSION,
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": claimed_spec({}, self.identity, self._duration),
            }
            lease = await self._api.request("POST", self._collection, body=lease, timeout=timeout)
        else:
            self._observed.update(lease.get("spec") or {}, time.monotonic())
            if self._observed.held_by_other(self.identity, time.monotonic()):
                return None
            # With its resourceVersion, a concurrent write of another replica is a Conflict.
            lease["spec"] = claimed_spec(self._observed.spec, self.identity, self._duration)
            lease = await self._api.request("PUT", self._path, body=lease, timeout=timeout)
        self._observed.update(lease["spec"], time.monotonic())
        return lease

    def _log_failure(self, error: Exception) -> None:
        """Log a failure unless it is the same as the last one."""
        message = str(error) or "no response in time"
        if not self._failures.is_new(message):
            return
        if isinstance(error, Forbidden):
            _log.error(
                "Leader election lacks permissions; retrying",
                grant=f"get, create and update leases.coordination.k8s.io in {self._namespace}",
                error=message,
            )
        else:
            _log.warning("Cannot renew the lease", lease=self._name, error=message)


def _check(election: LeaderElection) -> None:
    if not election.lease_name:
        raise ConfigError("leader election needs a Lease name: set --leader-election-id")
    if not election.lease_duration > election.renew_deadline:
        raise ConfigError(
            f"--leader-elect-lease-duration ({election.lease_duration}) must be longer than "
            f"--leader-elect-renew-deadline ({election.renew_deadline})"
        )
    if election.renew_deadline.total_seconds() <= 0:
        raise ConfigError("--leader-elect-renew-deadline must be longer than zero")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
