"""Keep a Lease: renew it in the background, and limit the time in which its holder may write.

Used for the Lease of the leader (leader_election.py) and of a member of the shards (membership.py),
which decide what is written into it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto

import structlog

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict, Forbidden
from operator_runner.core.fencing import Epoch, LeaseTerm, LeaseTimes
from operator_runner.core.model import GVK, Json
from operator_runner.core.settings import LeaderElection

LEASE = GVK("coordination.k8s.io", "v1", "Lease")
RELEASE_TIMEOUT_SECONDS = 5.0
"""Timeout of each request that releases a Lease: the process is about to exit."""
_RETRIES_PER_DEADLINE = 5
"""Renew deadline divided by retry period, as for client-go's defaults (10 s, 2 s)."""

_log = structlog.get_logger(__name__)


class LeaseAttempt(Enum):
    """The outcome of one attempt to hold a Lease."""

    HELD = auto()
    FAILED = auto()
    """The API server did not answer, or refused: the next attempt may succeed."""
    HELD_BY_OTHER = auto()


class LeaseKeeper:
    """One Lease of this process, and the term for which it is held."""

    def __init__(
        self,
        name: str,
        namespace: str,
        election: LeaderElection,
        *,
        write: Callable[[float], Awaitable[Json | None]],
        grant: str,
    ) -> None:
        """Prepare to keep the Lease `name` for the durations of `election`.

        `write` acquires or renews the Lease within a number of seconds and returns it, None if
        another process holds it; it may raise ApiError. `grant` names the verbs that it needs.
        """
        self.name = name
        self.namespace = namespace
        self.collection = f"/apis/{LEASE.api_version}/namespaces/{namespace}/leases"
        self.path = f"{self.collection}/{name}"
        self.seconds = math.ceil(election.lease_duration.total_seconds())
        """Seconds after a renewal at which the Lease expires."""
        self._deadline = election.renew_deadline.total_seconds()
        self.retry_period = self._deadline / _RETRIES_PER_DEADLINE
        self.term = LeaseTerm(f"{namespace}/{name}", LeaseTimes(self.seconds, self._deadline))
        self._write = write
        self._grant = f"{grant} leases.coordination.k8s.io in {namespace}"
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._failures = Deduplicator()

    async def acquire(self) -> LeaseAttempt:
        """Try once to hold the Lease; if it is held, renew it in the background from now on.

        Errors are logged: missing permissions can be granted.
        """
        self._lost.clear()
        attempt = await self._try(self._deadline)
        if attempt is LeaseAttempt.HELD:
            self._renewing = asyncio.create_task(self._renew(), name=f"renew lease {self.name}")
        return attempt

    def renew_soon(self) -> None:
        """Renew the Lease without waiting for the next period: what is written has changed."""
        self._wake.set()

    async def lost(self) -> None:
        """Return when the Lease is no longer held.

        At the latest the renew deadline after the last renewal, even if the API server hangs;
        other replicas wait for the lease duration, which is longer.
        """
        await self._lost.wait()

    async def stop(self) -> None:
        """End the renewals; further writes of runs are refused."""
        self.term.end()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
            self._renewing = None

    async def _renew(self) -> None:
        """Renew until the renew deadline is exceeded or another process holds the Lease."""
        reason = "it was not renewed within the renew deadline"
        try:
            while (left := self._left()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(self.retry_period, left)):
                        await self._wake.wait()
                left = self._left()
                # A request that hangs gets at most half of it, so that another attempt is possible.
                timeout = max(left / 2, min(left, self.retry_period))
                if await self._try(timeout) is LeaseAttempt.HELD_BY_OTHER:
                    reason = "another replica holds it, or it was deleted"
                    break
            _log.error("Lost the lease", lease=self.name, reason=reason)
        finally:
            self.term.end()
            self._lost.set()

    def _left(self) -> float:
        return self._deadline - self.term.age

    async def _try(self, timeout: float) -> LeaseAttempt:  # noqa: ASYNC109 an outcome, not an error
        # From before the request: other replicas count from when they observe its result.
        started = self.term.now()
        self._wake.clear()
        try:
            async with asyncio.timeout(timeout):
                lease = await self._write(timeout)
        except Conflict:
            return LeaseAttempt.FAILED  # another writer was faster; the next attempt reads it
        except (ApiError, TimeoutError) as error:
            self._log_failure(error)
            return LeaseAttempt.FAILED
        self._failures.reset()
        if lease is None:
            return LeaseAttempt.HELD_BY_OTHER
        self._extend(epoch_of(lease), started)
        return LeaseAttempt.HELD

    def _extend(self, epoch: Epoch, sent: float) -> None:
        if self.term.epoch not in {None, epoch}:
            _log.warning(
                "Acquired the lease again: current runs may no longer write", lease=self.name
            )
        self.term.extend(epoch, sent)

    def _log_failure(self, error: Exception) -> None:
        """Log a failure unless it is the same as the last one."""
        message = str(error) or "no response in time"
        if not self._failures.is_new(message):
            return
        if isinstance(error, Forbidden):
            _log.error(
                "Cannot renew the lease: permissions are missing; retrying",
                lease=self.name,
                grant=self._grant,
                error=message,
            )
        else:
            _log.warning("Cannot renew the lease", lease=self.name, error=message)


def claimed_spec(spec: Json, identity: str, seconds: int) -> Json:
    """Return the spec with which `identity` acquires or renews a Lease."""
    now = timestamp()
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


def timestamp() -> str:
    """Return the present time as a Kubernetes MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
