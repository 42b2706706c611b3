"""The Lease of this replica as a member of the shards. See docs/adr/0035-shards.md.

Unlike the leader Lease it has one holder in its life: once it is deleted, membership is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from operator_runner.core.errors import ApiError, Conflict, NotFound
from operator_runner.core.model import Json
from operator_runner.core.settings import LeaderElection
from operator_runner.core.slot_assignment import (
    BackoffState,
    Member,
    MemberReport,
    encode_report,
    encode_states,
)
from operator_runner.kube.api import Api
from operator_runner.kube.lease_keeper import (
    RELEASE_TIMEOUT_SECONDS,
    LeaseAttempt,
    LeaseKeeper,
    claimed_spec,
    lease_object,
)
from operator_runner.kube.shard_leases import BACKOFF, REPORT, lease_of_member, shard_labels

_log = structlog.get_logger(__name__)


class Membership:
    """Keeps the Lease of a member, with its report."""

    def __init__(self, api: Api, election: LeaderElection, namespace: str, member: Member) -> None:
        """Prepare the Lease of `member` beside that of `election`."""
        self._api = api
        self._member = member
        self._leader_lease = election.lease_name
        self._lease = LeaseKeeper(
            lease_of_member(election.lease_name, member),
            namespace,
            election,
            api,
            write=self._create_or_renew,
            grant="get, list, watch, create, update and delete",
            in_thread=False,  # the report is the state of the event loop
        )
        self.name = self._lease.name
        self.term = self._lease.term
        self.seconds: float = self._lease.seconds
        """Seconds after a renewal at which the Lease expires."""
        self._report: Callable[[], MemberReport] = MemberReport
        self._backoff: Callable[[], Mapping[str, BackoffState]] = dict
        self._renewed: Json = {}

    async def join(
        self,
        report: Callable[[], MemberReport],
        backoff: Callable[[], Mapping[str, BackoffState]] = dict,
    ) -> None:
        """Return once the Lease exists; it is then renewed in the background with the report.

        `backoff` returns what delays the resources of released slots, by uid; it is written with
        the report that releases them.

        Errors are logged and retried without limit: missing permissions can be granted.
        """
        self._report, self._backoff = report, backoff
        while await self._lease.acquire() is not LeaseAttempt.HELD:  # noqa: ASYNC110 requests, retried
            await asyncio.sleep(self._lease.retry_period)
        _log.info("Joined the shards", lease=self.name, identity=self._member)

    def report_soon(self) -> None:
        """Renew the Lease with the present report, without waiting for the next period."""
        self._lease.renew_soon()

    async def lost(self) -> None:
        """Return when this replica is no longer a member: its writes are refused."""
        await self._lease.lost()

    async def leave(self) -> None:
        """Delete the Lease, so that the slots are free at once; call it after all work has ended.

        A failure is logged, and the Lease expires.
        """
        await self._lease.stop()
        await self._hand_over()
        try:
            await self._api.request("DELETE", self._lease.path, timeout=RELEASE_TIMEOUT_SECONDS)
            _log.info("Left the shards", lease=self.name)
        except NotFound:
            pass
        except ApiError as error:
            _log.warning("Cannot delete the lease", lease=self.name, error=str(error))

    async def _hand_over(self) -> None:
        """Write what the last report lacks: others observe it before the Lease is deleted."""
        last = (self._renewed.get("metadata") or {}).get("annotations") or {}
        states = encode_states(self._backoff())
        if not self._renewed or not states or last.get(BACKOFF) == states:
            return
        try:
            await self._renew(RELEASE_TIMEOUT_SECONDS)
        except NotFound:
            pass  # another replica has deleted it
        except ApiError as error:
            _log.warning("Cannot hand over the backoff of resources", error=str(error))

    async def _create_or_renew(self, _: Api, timeout: float) -> Json | None:  # noqa: ASYNC109
        """Return the Lease, None if it was deleted or replaced. Raises ApiError."""
        if not self._renewed:
            with suppress(Conflict):  # an attempt without a response was carried out
                self._renewed = await self._request("POST", self._lease.collection, timeout)
                return self._renewed
            self._renewed = await self._read(timeout)
        try:
            return await self._renew(timeout)
        except NotFound:
            return None

    async def _renew(self, timeout: float) -> Json | None:  # noqa: ASYNC109 for requests
        # The uid keeps the API server from creating a Lease that was deleted.
        with suppress(Conflict):
            self._renewed = await self._request("PUT", self._lease.path, timeout)
            return self._renewed
        # A renewal without a response, or another client has written an annotation.
        lease = await self._read(timeout)
        may_reconcile = lease["spec"].get("holderIdentity") == self._member
        if not may_reconcile or lease["metadata"]["uid"] != self._renewed["metadata"]["uid"]:
            return None
        self._renewed = lease
        self._renewed = await self._request("PUT", self._lease.path, timeout)
        return self._renewed

    async def _request(self, method: str, path: str, timeout: float) -> Json:  # noqa: ASYNC109
        body = self._body(self._renewed)
        return await self._api.request(method, path, body=body, timeout=timeout)

    async def _read(self, timeout: float) -> Json:  # noqa: ASYNC109
        return await self._api.request("GET", self._lease.path, timeout=timeout)

    def _body(self, lease: Json) -> Json:
        annotations = {REPORT: encode_report(self._report())}
        if states := encode_states(self._backoff()):
            annotations[BACKOFF] = states
        spec = claimed_spec(lease.get("spec") or {}, self._member, self._lease.seconds)
        labels = shard_labels(self._leader_lease)
        body = lease_object(
            self.name, self._lease.namespace, spec, labels=labels, annotations=annotations
        )
        if lease:
            body["metadata"] |= {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        return body
