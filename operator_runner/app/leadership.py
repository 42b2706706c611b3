"""Leadership: the Lease of this replica or those of its shards, from acquisition to release.

It decides which resources this replica may run: with shards, with leader election, with neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Iterator, Sequence
from typing import Any

import structlog

from operator_runner.app.signals import Interrupted, unless_stopped
from operator_runner.controller.predicates.primary_events import SeenResources
from operator_runner.controller.sharding import Sharding
from operator_runner.core.fencing import Fences, LeaseTerm
from operator_runner.core.model import GVK, ObjectRef, Watch
from operator_runner.core.settings import Settings
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.leader_election import LeaderElector
from operator_runner.kube.membership import Membership
from operator_runner.kube.shard_leases import ShardLeases
from operator_runner.telemetry.metrics import Metrics


class ShardGate:
    """Decides by the uid of a resource what this replica may do, among others with other shards."""

    def __init__(self, sharding: Sharding, kinds: Container[GVK], seen: SeenResources) -> None:
        """`kinds` are those of primary resources, which `seen` has."""
        self._sharding = sharding
        self._kinds = kinds
        self._uid = seen.uid

    def term_of(self, ref: ObjectRef) -> LeaseTerm | None:
        """Return the term that covers a resource, or the trigger object of an Event."""
        if ref.gvk in self._kinds:
            return self._sharding.term_of(self._uid(ref))
        return self._sharding.term

    def may_reconcile(self, ref: ObjectRef) -> bool:
        """Return whether this replica reconciles a resource; all do once it is deleted.

        Each replica then drops its state.
        """
        uid = self._uid(ref)
        return not uid or self._sharding.is_active(uid)

    def claim(self, ref: ObjectRef) -> bool:
        """Return whether the current task may reconcile a resource; always once it is deleted."""
        uid = self._uid(ref)
        return not uid or self._sharding.claim(uid)


_log = structlog.get_logger(__name__)
LOSSES = frozenset({"leadership", "membership of shards"})
"""Names of the tasks whose end means that leadership was lost."""
RENEWALS = LOSSES | {"shards"}
"""Names of the tasks that renew Leases, also during the graceful shutdown."""


def sharding_of(
    settings: Settings,
    api: Api,
    discovery: Discovery,
    elector: LeaderElector | None,
    namespace: str,
) -> Sharding | None:
    """Return what shares the resources among replicas, None without shards."""
    if settings.shards is None or elector is None:
        return None
    return Sharding(
        elector,
        Membership(api, settings.leader_election, namespace, elector.identity),
        ShardLeases(api, discovery, settings.leader_election, namespace),
        limit=settings.shards.limit,
        grace=settings.graceful_shutdown.total_seconds(),
    )


class Leadership:
    """Acquires and releases leadership, and decides which resources this replica reconciles."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        seen: SeenResources,
        *,
        api: Api,
        discovery: Discovery,
        metrics: Metrics,
        namespace: str,
    ) -> None:
        """Request nothing yet. `seen` has the uids of resources; `namespace` is the operator's."""
        election = settings.leader_election
        namespace = election.namespace or namespace
        elector = LeaderElector(api, election, namespace) if election.enabled else None
        self.sharding = sharding_of(settings, api, discovery, elector, namespace)
        self._elector = elector
        self._metrics, self._lease = metrics, election.lease_name
        self.is_leading = elector is None
        self.gate: ShardGate | None = None
        self.fences = Fences() if elector is None else Fences(lambda _: elector.term)
        if self.sharding is not None:
            self.gate = ShardGate(self.sharding, {watch.gvk for watch in watches}, seen)
            self.fences = Fences(self.gate.term_of)
            metrics.shards.enable()

    @property
    def term(self) -> LeaseTerm | None:
        """The term of the Lease; without shards it covers every resource."""
        return None if self._elector is None else self._elector.term

    def term_of_uid(self, uid: str) -> LeaseTerm | None:
        """Return the term that covers the resource with a uid."""
        return self.term if self.sharding is None else self.sharding.term_of(uid)

    def owns(self, uid: str) -> bool:
        """Return whether this replica emits the Events and counts the metrics of an object."""
        return self.sharding is None or self.sharding.is_active(uid)

    async def acquire(self, stop: asyncio.Event) -> bool:
        """Wait until this replica may work; return False if it is to end before."""
        if self._elector is not None:
            self.is_leading = await self._acquire(self._elector, stop)
        return self.is_leading

    async def _acquire(self, elector: LeaderElector, stop: asyncio.Event) -> bool:
        lease = self._lease
        self._metrics.leading(lease, False)
        if self.sharding is not None:
            acquire, release = self.sharding.join, self.sharding.leave
            _log.info("Joining shards", lease=lease)
        else:
            acquire, release = elector.acquire, elector.release
            _log.info("Waiting for leadership", lease=lease)
        try:
            await unless_stopped(acquire(), stop)
        except Interrupted:
            # A cancelled request may have won the Lease all the same.
            await release()
            return False
        self._metrics.leading(lease, self.sharding is None)
        return True

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that run as long as this replica works, with their names."""
        if self.sharding is not None:
            yield "shards", self.sharding.run()
            yield "coordination of shards", self.sharding.coordinate()
            yield "membership of shards", self.sharding.lost()
        elif self._elector is not None:
            yield "leadership", self._elector.lost()

    async def start_leaving(self) -> None:
        """Release slots without runs at once, for other replicas."""
        if self.sharding is not None:
            self.sharding.start_leaving()
            await self.sharding.stop_coordinating()

    async def release(self, abort: Callable[[], None]) -> None:
        """Release the Lease, or those of the shards, after `abort` has ended all connections.

        Unsent writes of cancelled runs must not arrive beside those of a successor.
        """
        if self._elector is not None:
            abort()
            await (self._elector.release if self.sharding is None else self.sharding.leave)()
