"""Leader election by a Lease, with client-go's rules; ADR 0003 says why it is our own."""

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

from operator_runner.core.errors import ApiError, ConfigError, Conflict, Forbidden, NotFound
from operator_runner.core.model import Json
from operator_runner.core.settings import LeaderElection
from operator_runner.kube.api import Api

_API_VERSION = "coordination.k8s.io/v1"
_RENEWALS = 5
"""Tries within the renew deadline; client-go's defaults (10 s, 2 s) have the same relation."""
_JITTER = 1.2
"""A waiting replica asks up to this many times the retry period later."""
_RELEASE_TRIES = 3
_RELEASE_TIMEOUT = 5.0
"""Seconds for each request of a release; the process is about to end."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Observed:
    """The Lease's spec as last seen, and when (monotonic) it last changed for us.

    The times inside the Lease are never compared with our clock: hosts disagree about time.
    """

    spec: Json
    changed: float

    def see(self, spec: Json, now: float) -> None:
        """Take a fresh read in; the lease lives on only if the holder has changed it."""
        if spec != self.spec:
            self.spec, self.changed = spec, now

    def held_by_other(self, identity: str, now: float) -> bool:
        """Tell whether another replica leads: a holder is named and its time is not over."""
        holder = self.spec.get("holderIdentity")
        if not holder or holder == identity:
            return False
        lasts: float = self.spec.get("leaseDurationSeconds") or 0
        return now < self.changed + lasts


def claim(spec: Json, identity: str, seconds: int) -> Json:
    """Return the spec that makes or keeps `identity` the holder."""
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


class Elector:
    """One replica's part in the election."""

    def __init__(self, api: Api, election: LeaderElection, namespace: str) -> None:
        """Take part in the election of the Lease `namespace`/`election.lease_name`.

        Raises ConfigError for a missing name and durations that cannot work.
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
        self._retry = self._deadline / _RENEWALS
        self._observed = Observed({}, time.monotonic())
        self._renewed = 0.0
        self._lost = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._complaint = ""

    async def acquire(self) -> None:
        """Return once this replica leads; the Lease is renewed in the background from then on.

        Errors are logged and retried for ever: a right that is missing can be granted.
        """
        self._lost.clear()
        waiting_for = ""
        while not await self._try(self._deadline):
            holder = self._observed.spec.get("holderIdentity") or ""
            if holder != waiting_for:
                _log.info("waiting for the leader to go", lease=self._name, leader=holder)
                waiting_for = holder
            await asyncio.sleep(self._retry * random.uniform(1, _JITTER))  # noqa: S311
        _log.info("became the leader", lease=self._name, identity=self.identity)
        self._renewing = asyncio.create_task(self._renew(), name=f"renew lease {self._name}")

    async def lost(self) -> None:
        """Return when this replica no longer leads.

        At the latest the renew deadline after the last renewal, even if the API server hangs;
        the lease duration, after which others take over, is longer.
        """
        await self._lost.wait()

    async def release(self) -> None:
        """Give the Lease up, so that another replica need not wait until it expires.

        Call it when nothing works as the leader any more. Does nothing if another replica
        holds the Lease; a failure is logged, and the Lease expires by itself.
        """
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
            self._renewing = None
        for _ in range(_RELEASE_TRIES):
            try:
                await self._give_up()
            except Conflict:
                continue  # a renewal that was cut off was carried out in between
            except NotFound:
                pass  # somebody removed the Lease: it is free
            except ApiError as error:
                _log.warning("lease was not released", lease=self._name, reason=str(error))
            return

    async def _give_up(self) -> None:
        # Read first: a renewal that was cut off may have been carried out.
        lease = await self._api.request("GET", self._path, timeout=_RELEASE_TIMEOUT)
        spec = lease["spec"]
        if spec.get("holderIdentity") != self.identity:
            return
        now = _now()
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        lease["spec"] = spec | freed | {"acquireTime": now}
        await self._api.request("PUT", self._path, body=lease, timeout=_RELEASE_TIMEOUT)
        _log.info("released the lease", lease=self._name)

    async def _renew(self) -> None:
        """Renew until that fails for too long or another replica holds the Lease."""
        try:
            while (left := self._left()) > 0:
                await asyncio.sleep(min(self._retry, left))
                left = self._left()
                # A request that hangs gets half of it at most, so that it is not the last.
                timeout = max(left / 2, min(left, self._retry))
                if not await self._try(timeout) and self._observed.held_by_other(
                    self.identity, time.monotonic()
                ):
                    break
            holder = self._observed.spec.get("holderIdentity")
            _log.error("lost the leadership", lease=self._name, holder=holder)
        finally:
            self._lost.set()

    def _left(self) -> float:
        return self._renewed + self._deadline - time.monotonic()

    async def _try(self, timeout: float) -> bool:  # noqa: ASYNC109 a failed try, no error
        """Acquire or renew once; True if this replica leads for another lease duration."""
        # Counted from before the request: others count from when they see its result.
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                leads = await self._acquire_or_renew(timeout)
        except Conflict:
            return False  # somebody else was faster; the next try shows who
        except (ApiError, TimeoutError) as error:
            self._complain(error)
            return False
        self._complaint = ""
        if leads:
            self._renewed = started
        return leads

    async def _acquire_or_renew(self, timeout: float) -> bool:  # noqa: ASYNC109 see _try
        try:
            lease = await self._api.request("GET", self._path, timeout=timeout)
        except NotFound:
            lease = {
                "apiVersion": _API_VERSION,
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": claim({}, self.identity, self._duration),
            }
            lease = await self._api.request("POST", self._collection, body=lease, timeout=timeout)
        else:
            self._observed.see(lease.get("spec") or {}, time.monotonic())
            if self._observed.held_by_other(self.identity, time.monotonic()):
                return False
            # The resourceVersion inside makes a competitor's write in between a Conflict.
            lease["spec"] = claim(self._observed.spec, self.identity, self._duration)
            lease = await self._api.request("PUT", self._path, body=lease, timeout=timeout)
        self._observed.see(lease["spec"], time.monotonic())
        return True

    def _complain(self, error: Exception) -> None:
        """Log a failure once, until another one takes its place."""
        message = str(error) or "no answer in time"
        if message == self._complaint:
            return
        self._complaint = message
        if isinstance(error, Forbidden):
            _log.error(
                "leader election needs more rights; trying on",
                grant=f"get, create and update leases.coordination.k8s.io in {self._namespace}",
                reason=message,
            )
        else:
            _log.warning("lease could not be renewed", lease=self._name, reason=message)


def _check(election: LeaderElection) -> None:
    if not election.lease_name:
        raise ConfigError("leader election needs the name of a Lease: give --leader-election-id")
    if not election.lease_duration > election.renew_deadline:
        raise ConfigError(
            f"--leader-elect-lease-duration ({election.lease_duration}) must be longer than "
            f"--leader-elect-renew-deadline ({election.renew_deadline})"
        )
    if election.renew_deadline.total_seconds() <= 0:
        raise ConfigError("--leader-elect-renew-deadline must be longer than zero")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
