"""A replica as a member of the shards: follow the assignment, drain lost slots, and coordinate.

The decisions are those of core/slot_assignment.py. Backoff and throttling of resources move with
their slots. See docs/adr/0035-shards.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import structlog

from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.deduplication import Deduplicator
from operator_runner.core.errors import ApiError, Conflict
from operator_runner.core.fencing import LeaseTerm, boot_time
from operator_runner.core.model import ObjectRef
from operator_runner.core.slot_assignment import (
    BackoffState,
    Member,
    MemberReport,
    MemberSlots,
    SlotChange,
    bounded,
    revise,
    slot_of,
)
from operator_runner.kube.leader_election import LeaderElector
from operator_runner.kube.membership import Membership
from operator_runner.kube.shard_leases import ShardLeases

_RETRY_SECONDS = 1.0
"""Delay after a request of the coordinator that failed."""
_STAND_IN_SECONDS = 1.0
"""Time that other members give a coordinator to replace a member that has failed."""
_MIN_WAIT_SECONDS = 0.1

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SlotEvents:
    """Callbacks for changes of the slots of this member."""

    gained: Callable[[frozenset[int], Mapping[str, BackoffState]], None]
    """Enqueue the resources of these slots, and continue with these states of some, by uid."""
    released: Callable[[frozenset[int]], Mapping[str, BackoffState]]
    """Forget what is known about the resources of these slots: another member runs them.

    Returns what delays some of them, by uid.
    """
    counted: Callable[[int, int, int], None]
    """Report the numbers of active and of draining slots, and the epoch."""
    coordinating: Callable[[bool], None]
    """Report whether this member is the coordinator."""


NO_SLOT_EVENTS = SlotEvents(lambda *_: None, lambda _: {}, lambda *_: None, lambda _: None)
"""Callbacks that do nothing."""


class Sharding:
    """Decides which resources this replica may run."""

    def __init__(
        self,
        elector: LeaderElector,
        membership: Membership,
        leases: ShardLeases,
        *,
        limit: int | None,
        grace: float,
        events: SlotEvents = NO_SLOT_EVENTS,
    ) -> None:
        """`elector` is that of the coordinator; at most `limit` members get slots.

        Runs of a slot that moves away are cancelled after `grace` seconds. `events` may be set
        until `join`.
        """
        self._elector = elector
        self._membership = membership
        self._leases = leases
        self._limit = limit
        self._grace = grace
        self.events = events
        self._slots = MemberSlots(elector.identity)
        self._running: defaultdict[int, set[asyncio.Task[object]]] = defaultdict(set)
        self._drains: dict[int, asyncio.Task[None]] = {}
        self._handed_over: dict[str, BackoffState] = {}
        """States of resources of released slots, by uid, until another member has them."""
        self._is_coordinator = False
        self._to_revise = asyncio.Event()
        self._decided: object = None
        """The assignment and reports of the last revision."""
        self._reported: MemberReport | None = None
        self._gone: set[Member] = set()
        self._failed: dict[Member, float] = {}
        """Members that a coordinator should replace, and since when."""
        self._failures = Deduplicator()
        lease = membership.term
        self._no_term = LeaseTerm(lease.lease, lease.times)

    # Resources -----------------------------------------------------------------------

    @property
    def term(self) -> LeaseTerm:
        """The term of this member."""
        return self._membership.term

    def is_active(self, uid: str) -> bool:
        """Return whether the resource may be run."""
        return slot_of(uid) in self._slots.active

    def term_of(self, uid: str) -> LeaseTerm:
        """Return the term that covers the resource; one that has ended if it is not held."""
        held = bool(uid) and slot_of(uid) in self._slots.held
        return self.term if held else self._no_term

    def claim(self, uid: str) -> bool:
        """Return whether the current task may reconcile the resource.

        If so, its slot is not released before the task has ended.
        """
        slot, task = slot_of(uid), asyncio.current_task()
        assert task is not None
        if slot not in self._slots.active:
            return False
        if task not in self._running[slot]:
            self._running[slot].add(task)
            task.add_done_callback(self._running[slot].discard)
        return True

    # Membership ----------------------------------------------------------------------

    async def join(self) -> None:
        """Return once this replica is a member."""
        await self._membership.join(lambda: self._slots.report, lambda: self._handed_over)

    async def lost(self) -> None:
        """Return when this replica is no longer a member."""
        await self._membership.lost()

    async def run(self) -> NoReturn:
        """Follow the assignment until cancelled."""
        try:
            await self._leases.watch(self._on_change)
        finally:
            await end_tasks(self._drains.values())

    def start_leaving(self) -> None:
        """Take no more slots, and give up each of the present ones when its runs have ended."""
        self._apply(self._slots.leave())

    async def leave(self) -> None:
        """Delete the Lease of this member, after all work has ended."""
        # Slots whose runs were cancelled are draining yet.
        self._release(self._slots.draining)
        await self._elector.release()
        await self._membership.leave()

    def _on_change(self) -> None:
        leases = self._leases
        self._apply(self._slots.observe(leases.assignment))
        self._drop_taken_over()
        reports = {member: lease.report for member, lease in leases.members.items()}
        if self._decided != (leases.assignment, reports):
            self._decided = leases.assignment, reports
            self._to_revise.set()

    def _apply(self, change: SlotChange) -> None:
        for slot in change.gained & self._drains.keys():
            self._drains.pop(slot).cancel()
        if change.gained:
            _log.info("Gained slots", slots=len(change.gained), epoch=self._slots.epoch)
            self.events.gained(change.gained, self._take_over(change.gained))
        if change.lost:
            busy = {slot: {*runs} for slot in change.lost if (runs := self._running[slot])}
            _log.info(
                "Draining slots", slots=len(change.lost), busy=len(busy), epoch=self._slots.epoch
            )
            self._release(change.lost - busy.keys())
            for slot, runs in busy.items():
                draining = asyncio.create_task(self._drain(slot, runs), name=f"drain slot {slot}")
                self._drains[slot] = draining
        self._report()

    async def _drain(self, slot: int, runs: set[asyncio.Task[object]]) -> None:
        """Wait until none of the runs of the slot can write any more, and release it."""
        _, late = await asyncio.wait(runs, timeout=self._grace)
        if late:
            _log.warning("Cancelling reconciles of a slot that moves", slot=slot, count=len(late))
            await end_tasks(late)
            # Their last writes may be in flight, with a time limit shorter than this.
            await asyncio.sleep(self._membership.seconds)
        self._drains.pop(slot, None)
        self._release(frozenset({slot}))
        self._report()

    def _release(self, slots: frozenset[int]) -> None:
        for slot in slots:
            self._slots.drained(slot)
        if slots:
            self._handed_over = bounded(self._handed_over | {**self.events.released(slots)})

    def _take_over(self, slots: frozenset[int]) -> dict[str, BackoffState]:
        """Return the states of resources of slots that this member gains."""
        # The own ones may have been released a moment ago, and not be written yet.
        states = self._leases.handed_over | self._handed_over
        return {uid: state for uid, state in states.items() if slot_of(uid) in slots}

    def _drop_taken_over(self) -> None:
        """Drop the states of resources whose slot has an owner that has observed them."""
        # The own Lease as observed may be older than the release of a slot.
        others = (
            lease.report.held
            for member, lease in self._leases.members.items()
            if member != self._slots.member
        )
        held = self._slots.held.union(*others)
        for states in (self._leases.handed_over, self._handed_over):
            taken = [uid for uid in states if slot_of(uid) in held]
            for uid in taken:
                del states[uid]
            if taken and states is self._handed_over:
                self._membership.report_soon()

    def _report(self) -> None:
        report = self._slots.report
        if report != self._reported:
            self._reported = report
            self._membership.report_soon()
            self.events.counted(len(self._slots.active), len(self._slots.draining), report.epoch)

    # Coordination --------------------------------------------------------------------

    async def coordinate(self) -> NoReturn:
        """Be the coordinator whenever this replica holds the leader Lease, until cancelled.

        Without it, replace members that have failed if no coordinator does.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._revise_forever(), name="assignment of shards")
            while True:
                await self._elector.acquire()
                self._set_coordinator(True)
                try:
                    await self._elector.lost()
                finally:
                    self._set_coordinator(False)

    def _set_coordinator(self, is_coordinator: bool) -> None:
        self._is_coordinator = is_coordinator
        self.events.coordinating(is_coordinator)
        self._to_revise.set()

    async def stop_coordinating(self) -> None:
        """Release the leader Lease, so that another member coordinates."""
        await self._elector.release()

    async def _revise_forever(self) -> NoReturn:
        while True:
            self._to_revise.clear()
            try:
                seconds = await (self._revise() if self._is_coordinator else self._stand_in())
                self._failures.reset()
            except ApiError as error:
                if self._failures.is_new(str(error)):
                    _log.warning("Cannot assign shards; retrying", error=str(error))
                seconds = _RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._to_revise.wait()

    async def _revise(self) -> float:
        """Revise the assignment once; return the seconds until the next member may expire.

        Raises ApiError.
        """
        leases = self._leases
        if not leases.synced:
            return _RETRY_SECONDS
        if leases.is_missing:
            with suppress(Conflict):  # another coordinator was faster
                await leases.create(self._slots.member)
            return _RETRY_SECONDS
        await self._expel_expired()
        await self._find_gone()
        # Nothing is awaited from here to the request, so that it has the version of what was read.
        current = leases.assignment
        if current is None:
            return _RETRY_SECONDS
        members = leases.members
        reports = {member: lease.report for member, lease in members.items()}
        new = revise(current, reports, self._gone, self._limit)
        if new != current and await leases.publish(new, self._slots.member):
            owners = len(set(new.owners.values()))
            _log.info("Assigned shards", epoch=new.epoch, members=owners, moves=len(new.moves))
        expiries = (lease.expiry for member, lease in members.items() if member not in self._gone)
        return max(min(expiries, default=0.0) - boot_time(), _MIN_WAIT_SECONDS)

    async def _stand_in(self) -> float:
        """Revise if members that failed are still in the assignment; return a delay in seconds.

        The coordinator may have failed too, and the next one after it. Raises ApiError.
        """
        now = boot_time()
        failed = self._expired() | self._owners_without_lease()
        self._failed = {member: self._failed.get(member, now) for member in failed}
        if any(now - since >= _STAND_IN_SECONDS for since in self._failed.values()):
            await self._revise()
        return _RETRY_SECONDS

    async def _expel_expired(self) -> None:
        for member in self._expired():
            if await self._leases.expel(member):
                self._gone.add(member)
                _log.warning("Removed a member that did not renew its lease", member=member)

    def _expired(self) -> set[Member]:
        """Return other members whose Lease exists and has expired."""
        others = self._leases.members.keys() - self._gone - {self._slots.member}
        now = boot_time()
        return {each for each in others if now >= self._leases.members[each].expiry}

    async def _find_gone(self) -> None:
        """Ask for the Leases of owners that the watch does not show."""
        for member in self._owners_without_lease() - self._gone:
            if await self._leases.is_gone(member):
                self._gone.add(member)

    def _owners_without_lease(self) -> set[Member]:
        assignment = self._leases.assignment
        owners = set(assignment.owners.values()) if assignment is not None else set()
        return owners - self._leases.members.keys()


class BackoffHandover:
    """Reads what delays the runs of resources, and restores what another replica has read.

    A resource is enqueued at once by its new owner; if that run fails or continues a loop, the
    delay is the next one of the former owner.
    """

    def __init__(self, queue: WorkQueue, throttle: LoopThrottle) -> None:
        """Start with nothing to restore."""
        self._queue = queue
        self._throttle = throttle
        self._to_restore: dict[str, BackoffState] = {}
        """States by uid; the resources may not be known yet."""

    def gained(self, states: Mapping[str, BackoffState]) -> None:
        """Restore these states, by uid, when their resources are reconciled first."""
        self._to_restore.update(states)

    def restore(self, ref: ObjectRef, uid: str) -> None:
        """Continue with the state of a resource that is about to be reconciled, if there is one."""
        state = self._to_restore.pop(uid, None)
        if state is not None:
            self._queue.restore_failures(ref, state.failures)
            now = asyncio.get_running_loop().time()
            self._throttle.restore(ref, state.streak, now)

    def released(
        self, slots: Collection[int], resources: Iterable[tuple[ObjectRef, str]]
    ) -> dict[str, BackoffState]:
        """Return the states of resources of slots that are released, by uid."""
        states = {}
        for ref, uid in resources:
            current = BackoffState(self._queue.num_requeues(ref), self._throttle.count(ref))
            state = self._to_restore.get(uid, current)
            if state != BackoffState():
                states[uid] = state
        for uid in [uid for uid in self._to_restore if slot_of(uid) in slots]:
            del self._to_restore[uid]
        return states
