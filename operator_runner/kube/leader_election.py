"""Leader election with a Lease, by the rules of client-go. See ADR 0003 for the reasons.

The term of the Lease permits the writes of runs, see core/fencing.py. The loop that renews the
Lease is in lease_keeper.py.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from dataclasses import dataclass
from uuid import uuid4

import structlog

from operator_runner.core.errors import ApiError, Conflict, NotFound
from operator_runner.core.model import Json
from operator_runner.core.settings import LeaderElection
from operator_runner.kube.api import Api
from operator_runner.kube.lease_keeper import (
    RELEASE_TIMEOUT_SECONDS,
    LeaseAttempt,
    LeaseKeeper,
    claimed_spec,
    lease_object,
    timestamp,
)

_JITTER_FACTOR = 1.2
"""A waiting replica multiplies the retry period by a random factor of up to this."""
_RELEASE_ATTEMPTS = 3

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


class LeaderElector:
    """Leader election of one replica."""

    def __init__(self, api: Api, election: LeaderElection, namespace: str) -> None:
        """Take part in the election of the Lease `namespace`/`election.lease_name`."""
        self.identity = f"{socket.gethostname()}_{uuid4()}"
        self._api = api
        self._lease = LeaseKeeper(
            election.lease_name,
            namespace,
            election,
            api,
            write=self._acquire_or_renew,
            grant="get, create and update",
            in_thread=True,
        )
        self.term = self._lease.term
        self._observed = ObservedLease({}, time.monotonic())

    async def acquire(self) -> None:
        """Return once this replica leads; the Lease is then renewed in the background.

        Errors are logged and retried without limit: missing permissions can be granted.
        """
        waiting_for = ""
        while await self._lease.acquire() is not LeaseAttempt.HELD:
            holder = self._observed.spec.get("holderIdentity") or ""
            if holder != waiting_for:
                _log.info(
                    "Waiting for the leader to release the lease",
                    lease=self._lease.name,
                    leader=holder,
                )
                waiting_for = holder
            await asyncio.sleep(self._seconds_to_next_attempt())
        _log.info("Became the leader", lease=self._lease.name, identity=self.identity)

    def _seconds_to_next_attempt(self) -> float:
        """Return the retry period, or less: a lease that expires before is acquired at once."""
        period = self._lease.retry_period * random.uniform(1, _JITTER_FACTOR)  # noqa: S311 not for security
        left = self._observed.expiry - time.monotonic()
        return min(period, left) if left > 0 else period

    async def lost(self) -> None:
        """Return when this replica no longer leads, see LeaseKeeper.lost."""
        await self._lease.lost()

    async def release(self) -> None:
        """Release the Lease, so that another replica need not wait until it expires.

        Call it after all work of the leader has ended. Does nothing if another replica holds
        the Lease; a failure is logged, and the Lease expires. Further writes are refused.
        """
        await self._lease.stop()
        for _ in range(_RELEASE_ATTEMPTS):
            try:
                await self._release_lease()
            except Conflict:
                continue  # a cancelled renewal was carried out in between
            except NotFound:
                pass  # the Lease was deleted: it is free
            except ApiError as error:
                _log.warning("Cannot release the lease", lease=self._lease.name, error=str(error))
            return

    async def _release_lease(self) -> None:
        # Read first: a cancelled renewal may have been carried out.
        lease = await self._api.request("GET", self._lease.path, timeout=RELEASE_TIMEOUT_SECONDS)
        spec = lease["spec"]
        if spec.get("holderIdentity") != self.identity:
            return
        now = timestamp()
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        lease["spec"] = spec | freed | {"acquireTime": now}
        await self._api.request(
            "PUT", self._lease.path, body=lease, timeout=RELEASE_TIMEOUT_SECONDS
        )
        _log.info("Released the lease", lease=self._lease.name)

    async def _acquire_or_renew(self, api: Api, timeout: float) -> Json | None:  # noqa: ASYNC109
        """Return the Lease that this replica holds now, None if another one holds it."""
        try:
            lease = await api.request("GET", self._lease.path, timeout=timeout)
        except NotFound:
            spec = claimed_spec({}, self.identity, self._lease.seconds)
            lease = lease_object(self._lease.name, self._lease.namespace, spec)
            lease = await api.request("POST", self._lease.collection, body=lease, timeout=timeout)
        else:
            self._observed.update(lease.get("spec") or {}, time.monotonic())
            if self._observed.held_by_other(self.identity, time.monotonic()):
                return None
            # With its resourceVersion, a concurrent write of another replica is a Conflict.
            lease["spec"] = claimed_spec(self._observed.spec, self.identity, self._lease.seconds)
            lease = await api.request("PUT", self._lease.path, body=lease, timeout=timeout)
        self._observed.update(lease["spec"], time.monotonic())
        return lease
