"""Keep a Lease: renew it in the background, and limit the time in which its holder may write.

Used for the Lease of the leader (leader_election.py) and of a member of the shards (membership.py),
which decide what is written into it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto

import structlog

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, ConfigError, Conflict, Forbidden
from operator_runner.core.fencing import Epoch, LeaseTerm, LeaseTimes
from operator_runner.core.model import GVK, Json
from operator_runner.core.settings import LeaderElection
from operator_runner.kube.api import Api

LEASE = GVK("coordination.k8s.io", "v1", "Lease")
RELEASE_TIMEOUT_SECONDS = 5.0
"""Timeout of each request that releases a Lease: the process is about to exit."""
_RETRIES_PER_DEADLINE = 5
"""Renew deadline divided by retry period, as for client-go's defaults (10 s, 2 s)."""

_RESPONSE_SECONDS = 60.0
"""An event loop that is occupied for longer gives up the Lease: it may never go on."""

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
        api: Api,
        *,
        write: Callable[[Api, float], Awaitable[Json | None]],
        grant: str,
        in_thread: bool,
    ) -> None:
        """Prepare to keep the Lease `name` for the durations of `election`.

        `write` acquires or renews the Lease within a number of seconds and returns it, None if
        another process holds it; it may raise ApiError. `grant` names the verbs that it needs.
        `in_thread` renews in a thread, so that an occupied event loop does not lose the Lease;
        `write` uses nothing of the event loop then but the Api that it gets.
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
        self._api, self._write, self._in_thread = api, write, in_thread
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
        attempt = await self._try(self._api, self._deadline)
        if attempt is LeaseAttempt.HELD:
            self._renewing = asyncio.create_task(self._keep(), name=f"renew lease {self.name}")
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

    async def _keep(self) -> None:
        try:
            if self._in_thread and await self._renew_in_thread():
                return
            await self._renew(self._api, self.term.now)
        finally:
            self.term.end()
            self._lost.set()

    async def _renew_in_thread(self) -> bool:
        """Renew in a thread with an event loop and a connection of its own.

        Return False if there can be none: no thread, or no credentials.
        """
        main, responded = asyncio.get_running_loop(), self.term.now()

        def respond() -> None:
            nonlocal responded
            responded = self.term.now()

        def last_response() -> float:
            main.call_soon_threadsafe(respond)
            return responded

        async def renew() -> None:
            connection = await self._api.connection.again()
            self._wake = asyncio.Event()  # of this event loop
            try:
                await self._renew(Api(connection), last_response)
            finally:
                await connection.close()

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="lease", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            loop.close()
            _log.warning("Cannot renew the lease in a thread", lease=self.name, error=str(error))
            return False
        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(renew(), loop))
        except (ConfigError, OSError) as error:
            _log.warning("Cannot renew the lease in a thread", lease=self.name, error=str(error))
            return False
        finally:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(end(), loop))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        return True

    async def _renew(self, api: Api, last_response: Callable[[], float]) -> None:
        """Renew until the renew deadline is exceeded or another process holds the Lease.

        `last_response` returns when the event loop of the operator last ran.
        """
        reason = "it was not renewed within the renew deadline"
        try:
            while (left := self._left()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(self.retry_period, left)):
                        await self._wake.wait()
                if self.term.now() - last_response() > _RESPONSE_SECONDS:
                    reason = f"the operator did not respond for {_RESPONSE_SECONDS:g} s"
                    break
                left = self._left()
                # A request that hangs gets at most half of it, so that another attempt is possible.
                timeout = max(left / 2, min(left, self.retry_period))
                if await self._try(api, timeout) is LeaseAttempt.HELD_BY_OTHER:
                    reason = "another replica holds it, or it was deleted"
                    break
            _log.error("Lost the lease", lease=self.name, reason=reason)
        finally:
            self.term.end()  # at once, also if the event loop of the operator is occupied

    def _left(self) -> float:
        return self._deadline - self.term.age

    async def _try(self, api: Api, timeout: float) -> LeaseAttempt:  # noqa: ASYNC109 an outcome
        # From before the request: other replicas count from when they observe its result.
        started = self.term.now()
        self._wake.clear()
        try:
            async with asyncio.timeout(timeout):
                lease = await self._write(api, timeout)
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


def lease_object(name: str, namespace: str, spec: Json, **metadata: Json) -> Json:
    """Return a Lease with this spec and further fields of its metadata."""
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def epoch_of(lease: Json) -> Epoch:
    """Return the epoch of a held Lease."""
    return str(lease["metadata"]["uid"]), int(lease["spec"].get("leaseTransitions") or 0)


def timestamp() -> str:
    """Return the present time as a Kubernetes MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
