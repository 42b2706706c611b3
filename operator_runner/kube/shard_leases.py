"""The Leases of shards: one of each member, with its report, and one with the assignment.

All of them have the label of the leader Lease, so that one watch shows them.
See docs/adr/0035-shards.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import structlog

from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.fencing import boot_time
from operator_runner.core.model import ANNOTATION_DOMAIN, Json
from operator_runner.core.settings import LeaderElection
from operator_runner.core.slot_assignment import (
    SLOTS,
    Assignment,
    BackoffState,
    Member,
    MemberReport,
    decode_assignment,
    decode_report,
    decode_states,
    encode_assignment,
)
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.lease_keeper import LEASE, lease_object
from operator_runner.kube.watch import EventType, Extraction, MetadataEvent, watch_metadata

LABEL = f"{ANNOTATION_DOMAIN}/shards-of"
"""Label of the Leases of one operator; its value is the name of the leader Lease."""
REPORT = f"{ANNOTATION_DOMAIN}/shard-report"
"""Annotation of the Lease of a member."""
BACKOFF = f"{ANNOTATION_DOMAIN}/shard-backoff"
"""Annotation of the Lease of a member: what delays the resources of slots that it has released."""
ASSIGNMENT = f"{ANNOTATION_DOMAIN}/shard-assignment"
"""Annotation of the Lease with the assignment."""
_HOLDS_EVERYTHING = MemberReport(held=frozenset(range(SLOTS)))
"""Taken for a report that cannot be read: nothing is assigned on account of it."""
_RESTART_SECONDS = 2.0

_log = structlog.get_logger(__name__)


def lease_of_member(lease: str, member: Member) -> str:
    """Return the name of the Lease of a member; it is never used again."""
    return f"{lease}-{member.rpartition('_')[2]}"


def shard_labels(lease: str) -> Json:
    """Return the labels of the Leases of an operator with this leader Lease."""
    return {LABEL: lease}


@dataclass(frozen=True, slots=True)
class MemberLease:
    """The Lease of a member as last observed; `changed` is the local time of that."""

    name: str
    uid: str
    version: str
    duration: float
    report: MemberReport
    changed: float

    @property
    def expiry(self) -> float:
        """Local time at which the Lease expires, unless it is renewed."""
        return self.changed + self.duration


class ShardLeases:
    """All Leases of the shards of one operator, kept up to date by a watch."""

    def __init__(
        self, api: Api, discovery: Discovery, election: LeaderElection, namespace: str
    ) -> None:
        """Watch the Leases that belong to `election` in a namespace."""
        self._api = api
        self._discovery = discovery
        self._namespace = namespace
        self._lease = election.lease_name
        self._name = f"{election.lease_name}-shards"
        self._collection = f"/apis/{LEASE.api_version}/namespaces/{namespace}/leases"
        self._silence = election.renew_deadline.total_seconds()
        self._members: dict[str, tuple[Member, MemberLease]] = {}
        self._object: Json | None = None
        self._failures = Deduplicator()
        self.synced = False
        """Whether all Leases have been listed."""
        self.assignment: Assignment | None = None
        self.handed_over: dict[str, BackoffState] = {}
        """States of resources of released slots, as members have written them, by uid.

        It outlives the Lease of a member that has left. `Sharding` removes what is taken over.
        """

    @property
    def members(self) -> dict[Member, MemberLease]:
        """The members whose Lease exists."""
        return dict(self._members.values())

    @property
    def is_missing(self) -> bool:
        """Whether the object of the assignment does not exist."""
        return self.synced and self._object is None

    async def watch(self, on_change: Callable[[], None]) -> NoReturn:
        """Follow the Leases until cancelled; `on_change` is called for each change once synced.

        Members renew their Leases all the time, so a watch without events is broken: it is
        begun again.
        """
        while True:
            try:
                await self._watch(on_change)
            except TimeoutError:
                _log.warning("No events of member Leases; watching again", seconds=self._silence)
                continue
            except ApiError as error:
                self._log_failure(error)
            await asyncio.sleep(_RESTART_SECONDS)

    async def _watch(self, on_change: Callable[[], None]) -> None:
        # A new list comes in the order of names: it is complete, and consistent, at its end.
        self.synced = False
        resource = await self._discovery.resource(LEASE)
        selector = f"{LABEL}={self._lease}"
        extraction = Extraction(lambda body: body.get("spec") or {}, whole=True)
        events = watch_metadata(
            self._api, resource, self._namespace, selector, extraction=extraction
        )
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    event = await anext(events)
                self._failures.reset()
                self._take(event)
                if self.synced:
                    on_change()
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    def _take(self, event: MetadataEvent) -> None:
        if event.type is EventType.SYNCED:
            uids = event.body["uids"]
            for name in [k for k, (_, lease) in self._members.items() if lease.uid not in uids]:
                del self._members[name]
            if self._object is not None and self._object["metadata"]["uid"] not in uids:
                self._object = self.assignment = None
            self.synced = True
            return
        metadata = event.body["metadata"]
        name, is_deleted = metadata["name"], event.type is EventType.DELETED
        if name == self._name:
            self._take_assignment(None if is_deleted else event.body)
        elif is_deleted:
            self._take_states(metadata)
            self._members.pop(name, None)
        else:
            self._take_member(name, metadata, event.extracted)

    def _take_assignment(self, body: Json | None) -> None:
        self._object, self.assignment = body, None
        if body is None:
            return
        metadata = body["metadata"]
        text = (metadata.get("annotations") or {}).get(ASSIGNMENT, "")
        try:
            self.assignment = decode_assignment(metadata["uid"], text)
        except ValueError as error:
            _log.error(
                "Invalid assignment of shards: delete the Lease", lease=self._name, error=str(error)
            )

    def _take_member(self, name: str, metadata: Json, spec: Json) -> None:
        member = str(spec.get("holderIdentity") or "")
        if name != lease_of_member(self._lease, member):
            return
        version = metadata["resourceVersion"]
        _, old = self._members.get(name, (None, None))
        if old is not None and old.version == version:
            return
        self._take_states(metadata)
        try:
            report = decode_report((metadata.get("annotations") or {}).get(REPORT, ""))
        except ValueError:
            report = _HOLDS_EVERYTHING
        duration = float(spec.get("leaseDurationSeconds") or 0)
        lease = MemberLease(name, metadata["uid"], version, duration, report, boot_time())
        self._members[name] = member, lease

    def _take_states(self, metadata: Json) -> None:
        self.handed_over |= decode_states((metadata.get("annotations") or {}).get(BACKOFF, ""))

    async def create(self, coordinator: Member) -> None:
        """Create the object of the assignment, without owners. Raises ApiError."""
        body = self._body(Assignment(), coordinator)
        await self._api.request("POST", self._collection, body=body)

    async def publish(self, assignment: Assignment, coordinator: Member) -> bool:
        """Replace the assignment that was observed; return False after a conflict.

        Raises ApiError.
        """
        assert self._object is not None
        observed = self._object["metadata"]
        body = self._body(assignment, coordinator)
        body["metadata"] |= {key: observed[key] for key in ("uid", "resourceVersion")}
        try:
            await self._api.request("PUT", f"{self._collection}/{self._name}", body=body)
        except (Conflict, NotFound):
            return False
        return True

    def _body(self, assignment: Assignment, coordinator: Member) -> Json:
        spec = {"holderIdentity": coordinator}
        annotations = {ASSIGNMENT: encode_assignment(assignment)}
        labels = shard_labels(self._lease)
        return lease_object(
            self._name, self._namespace, spec, labels=labels, annotations=annotations
        )

    async def is_gone(self, member: Member) -> bool:
        """Return whether the Lease of a member does not exist. Raises ApiError."""
        try:
            await self._api.request("GET", self._path(member))
        except NotFound:
            return True
        return False

    async def expel(self, member: Member) -> bool:
        """Delete the Lease of a member that was not renewed; return False if it was after all.

        Raises ApiError.
        """
        lease = self.members.get(member)
        if lease is None:  # another member was faster
            return True
        preconditions = {"uid": lease.uid, "resourceVersion": lease.version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self._api.request("DELETE", self._path(member), body=options)
        except NotFound:
            return True
        except Conflict:
            if self._members.get(lease.name) == (member, lease):
                self._members[lease.name] = member, replace(lease, changed=boot_time())
            return False
        return True

    def _path(self, member: Member) -> str:
        return f"{self._collection}/{lease_of_member(self._lease, member)}"

    def _log_failure(self, error: ApiError) -> None:
        if not self._failures.is_new(str(error)):
            return
        if isinstance(error, Forbidden):
            _log.error(
                "Shards lack permissions; retrying",
                grant="get, list, watch, create, update and delete leases.coordination.k8s.io"
                f" in {self._namespace}",
                error=str(error),
            )
        else:
            _log.warning("Cannot watch the Leases of shards; retrying", error=str(error))
