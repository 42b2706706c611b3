"""A slot that moves is released when nothing can write its resources any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from operator_runner.controller.sharding import Sharding, SlotEvents
from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fence, LeaseTerm
from operator_runner.core.slot_assignment import (
    SLOTS,
    Assignment,
    BackoffState,
    MemberReport,
    SlotMove,
    slot_of,
)
from tests.fakes.term import Clock, held_term

UID = "9fd5d1bd-0d0e-4a3e-a6f3-0a8d6f1f1c11"
SLOT = slot_of(UID)
ALL = frozenset(range(SLOTS))
OWNED = Assignment("object", 1, dict.fromkeys(range(SLOTS), "a"))
MOVING = Assignment("object", 2, OWNED.owners, {SLOT: SlotMove("b", 2)})


class Elector:
    """The election of the coordinator, which another replica has won."""

    identity = "a"

    async def release(self) -> None:
        """Do nothing."""


class Lease:
    """The Lease of this member, which is held."""

    seconds = 0.05

    def __init__(self) -> None:
        self.term: LeaseTerm = held_term(Clock())
        self.reported = asyncio.Event()
        self.report: Callable[[], MemberReport] = MemberReport
        self.backoff: Callable[[], Mapping[str, BackoffState]] = dict

    async def join(
        self, report: Callable[[], MemberReport], backoff: Callable[[], Mapping[str, BackoffState]]
    ) -> None:
        """Keep the readers of the annotations."""
        self.report, self.backoff = report, backoff

    async def leave(self) -> None:
        """Do nothing."""

    def report_soon(self) -> None:
        """Record that the report has changed."""
        self.reported.set()


class Leases:
    """The assignment as a test sets it."""

    def __init__(self) -> None:
        self.assignment: Assignment | None = None
        self.members: dict[str, Any] = {}
        self.handed_over: dict[str, BackoffState] = {}
        self.on_change: Callable[[], None] = lambda: None

    async def watch(self, on_change: Callable[[], None]) -> NoReturn:
        """Keep the listener."""
        self.on_change = on_change
        await asyncio.Event().wait()
        raise AssertionError


class Member:
    """A member with recorded events."""

    def __init__(self, grace: float) -> None:
        self.lease, self.leases = Lease(), Leases()
        self.gained: list[frozenset[int]] = []
        self.released: list[frozenset[int]] = []
        self.taken_over: list[Mapping[str, BackoffState]] = []
        self.states: dict[str, BackoffState] = {}
        elector: Any = Elector()
        lease: Any = self.lease
        leases: Any = self.leases
        self.sharding = Sharding(
            elector,
            lease,
            leases,
            limit=None,
            grace=grace,
            events=SlotEvents(self._on_gained, self._on_released, lambda *_: None, lambda _: None),
        )

    def _on_gained(self, slots: frozenset[int], states: Mapping[str, BackoffState]) -> None:
        self.gained.append(slots)
        self.taken_over.append(states)

    def _on_released(self, slots: frozenset[int]) -> Mapping[str, BackoffState]:
        self.released.append(slots)
        return {uid: state for uid, state in self.states.items() if slot_of(uid) in slots}

    def observe(self, assignment: Assignment | None) -> None:
        """Let the watch show an assignment."""
        self.leases.assignment = assignment
        self.leases.on_change()

    async def work(self, end: asyncio.Event) -> bool:
        """Reconcile the resource until `end`; return whether that was permitted."""
        if self.sharding.claim(UID):
            await end.wait()
            return True
        return False

    @property
    def held(self) -> frozenset[int]:
        """The slots that are reported as held."""
        return self.lease.report().held

    async def wait_released(self) -> None:
        """Wait until the report is without the slot."""
        async with asyncio.timeout(60):
            while SLOT in self.held:
                self.lease.reported.clear()
                await self.lease.reported.wait()


@asynccontextmanager
async def member(grace: float = 60.0) -> AsyncIterator[Member]:
    """Run a member that owns all slots."""
    made = Member(grace)
    await made.sharding.join()
    running = asyncio.create_task(made.sharding.run())
    await asyncio.sleep(0)
    made.observe(OWNED)
    yield made
    running.cancel()
    await asyncio.wait([running])


async def test_a_gained_slot_may_be_worked_on() -> None:
    """Its writes are permitted by the Lease of this member."""
    async with member() as one:
        assert one.gained == [ALL]
        assert one.sharding.is_active(UID)
        Fence(one.sharding.term_of(UID)).check()


async def test_a_slot_without_runs_is_released_at_once() -> None:
    """Its resources can be neither run nor written after that."""
    async with member() as one:
        one.observe(MOVING)

        assert one.released == [frozenset({SLOT})]
        assert one.lease.report() == MemberReport("object", 2, ALL - {SLOT})
        assert not await one.work(asyncio.Event())
        with pytest.raises(Fenced):
            Fence(one.sharding.term_of(UID)).check()


async def test_a_slot_is_held_until_its_last_run_has_ended() -> None:
    """No new one begins meanwhile, and the current one may write."""
    end = asyncio.Event()
    async with member() as one:
        run = asyncio.create_task(one.work(end))
        await asyncio.sleep(0)
        one.observe(MOVING)

        assert SLOT in one.held
        assert not one.sharding.is_active(UID)
        assert not await one.work(end)
        Fence(one.sharding.term_of(UID)).check()
        end.set()
        assert await run
        await one.wait_released()
        assert one.released == [frozenset({SLOT})]


async def test_a_slot_whose_last_run_has_just_ended_is_released() -> None:
    """The move is observed after the run has ended, before the callbacks of its task are called."""
    end = asyncio.Event()
    async with member() as one:

        async def observe() -> None:
            await end.wait()
            one.observe(MOVING)

        run = asyncio.create_task(one.work(end))
        observing = asyncio.create_task(observe())
        await asyncio.sleep(0)
        end.set()
        await observing
        assert run.done()
        await one.wait_released()
        assert one.released == [frozenset({SLOT})]


async def test_a_run_that_takes_too_long_is_cancelled_before_the_release() -> None:
    """The slot is held until the last writes of the run have ended."""
    async with member(grace=0.0) as one:
        run = asyncio.create_task(one.work(asyncio.Event()))
        await asyncio.sleep(0)
        one.observe(MOVING)
        await asyncio.wait([run])

        assert run.cancelled()
        assert SLOT in one.held
        await one.wait_released()


async def test_a_move_that_is_withdrawn_ends_the_drain() -> None:
    """The resources are enqueued again, because their events were dropped meanwhile."""
    end = asyncio.Event()
    async with member() as one:
        run = asyncio.create_task(one.work(end))
        await asyncio.sleep(0)
        one.observe(MOVING)

        one.observe(Assignment("object", 3, OWNED.owners))

        assert one.gained == [ALL, frozenset({SLOT})]
        end.set()
        await run
        assert one.lease.report() == MemberReport("object", 3, ALL)
        assert one.released == []


async def test_a_leaving_member_gets_no_slots() -> None:
    """Also with assigned slots."""
    async with member() as one:
        one.sharding.start_leaving()
        one.observe(Assignment("object", 3, OWNED.owners))

        assert one.lease.report() == MemberReport("object", 3, leaving=True)
        assert one.gained == [ALL]


async def test_a_resource_without_a_uid_cannot_be_written() -> None:
    """It is deleted, or not known yet."""
    async with member() as one:
        with pytest.raises(Fenced):
            Fence(one.sharding.term_of("")).check()


FAILING = {UID: BackoffState(failures=7)}


def reporting(*held: int) -> Any:
    """Return the Lease of a member that holds slots."""
    return SimpleNamespace(report=MemberReport("object", 3, frozenset(held)))


async def test_a_released_slot_is_reported_with_its_states_until_the_next_owner_has_it() -> None:
    """An outdated copy of the own Lease, from before the release, does not remove them."""
    async with member() as one:
        one.states = FAILING
        one.leases.members = {"a": reporting(SLOT), "b": reporting()}
        one.observe(MOVING)
        assert one.lease.backoff() == FAILING

        moved = Assignment("object", 3, {**OWNED.owners, SLOT: "b"})
        one.observe(moved)
        assert one.lease.backoff() == FAILING

        one.lease.reported.clear()
        one.leases.members["b"] = reporting(SLOT)
        one.observe(moved)
        assert one.lease.backoff() == {}
        assert one.lease.reported.is_set()


async def test_a_gained_slot_comes_with_the_states_of_its_former_owner() -> None:
    """Those of other slots stay for their next owners; what was taken over is used once."""
    other = next(uid for uid in map(str, range(999)) if slot_of(uid) != SLOT)
    async with member() as one:
        one.observe(Assignment("object", 2, dict.fromkeys(range(SLOTS), "b")))
        one.leases.handed_over = {**FAILING, other: BackoffState(failures=1)}

        one.observe(Assignment("object", 3, {**dict.fromkeys(range(SLOTS), "b"), SLOT: "a"}))

        assert one.taken_over[-1] == FAILING
        assert one.leases.handed_over == {other: BackoffState(failures=1)}


async def test_a_slot_that_returns_at_once_comes_with_its_states() -> None:
    """The next owner failed before it had the slot."""
    async with member() as one:
        one.states = FAILING
        one.observe(MOVING)
        one.states = {}

        one.observe(Assignment("object", 3, OWNED.owners))

        assert one.taken_over[-1] == FAILING
        assert one.lease.backoff() == {}


async def test_a_leaving_member_hands_over_slots_whose_runs_were_cancelled() -> None:
    """Its Lease is deleted after that."""
    async with member() as one:
        one.states = FAILING
        run = asyncio.create_task(one.work(asyncio.Event()))
        await asyncio.sleep(0)
        one.sharding.start_leaving()
        assert one.lease.backoff() == {}
        run.cancel()
        await asyncio.wait([run])

        await one.sharding.leave()

        assert one.lease.backoff() == FAILING
        assert one.held == frozenset()
