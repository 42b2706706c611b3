"""Which writes are permitted after a renewal, an expiry and a new epoch of the Lease."""

from __future__ import annotations

import asyncio
import time

import pytest

from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import (
    UNFENCED,
    Fence,
    Fences,
    LeaseTerm,
    LeaseTimes,
    boot_time,
)
from operator_runner.core.model import GVK, ObjectRef
from tests.fakes.term import EPOCH, Clock, held_term

TIMES = LeaseTimes(duration=15.0, renew_deadline=10.0)
NEXT = ("uid", 1)
A, B = (ObjectRef(GVK("example.com", "v1", "Foo"), "default", name) for name in "ab")


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def term(clock: Clock) -> LeaseTerm:
    """Return a term that was just renewed."""
    return held_term(clock)


@pytest.mark.parametrize(
    ("age", "limit", "permitted"),
    [
        (0, 0, True),
        (9.9, 0, True),
        (10.0, 0, False),
        (14.0, 0, False),
        (5.0, 10.0, True),
        (5.0, 10.1, False),
        (9.9, 5.2, False),
    ],
)
def test_a_write_is_sent_before_the_renew_deadline_and_ends_before_the_lease(
    age: float, limit: float, permitted: bool
) -> None:
    """Both its start and its end are inside the time for which no other replica can lead."""
    assert TIMES.permits(age, limit) is permitted


@pytest.mark.parametrize("age", [0.0, 2.0, 9.99])
def test_the_limit_of_a_write_leaves_half_of_the_margin_for_its_way(age: float) -> None:
    """A write that is sent with its limit ends 2.5 s before the lease, whenever it is sent."""
    assert age + TIMES.limit(age) == pytest.approx(12.5)
    assert TIMES.permits(age, TIMES.limit(age))


def test_a_renewal_permits_more_writes(term: LeaseTerm, clock: Clock) -> None:
    """The fence of a run is extended with the term."""
    fence = Fence(term)
    clock.now += 9
    term.extend(EPOCH, clock.now)
    clock.now += 9
    fence.check()


def test_the_time_of_a_renewal_is_that_before_its_request(term: LeaseTerm, clock: Clock) -> None:
    """A slow renewal extends the term by less: others count from what they observe."""
    sent = clock.now
    clock.now += 9
    term.extend(EPOCH, sent)
    clock.now += 2
    with pytest.raises(Fenced, match=r"Lease team/web.*renewed 11\.0 s ago.*15 s after a renewal"):
        Fence(term).check()


def test_a_permit_expires_before_it_is_used(term: LeaseTerm, clock: Clock) -> None:
    """A write whose connection took too long is not sent."""
    permit = Fence(term).permit()
    assert permit is not None
    assert permit.timeout == "12.5s"
    clock.now += 2.4
    permit.check()
    clock.now += 0.2
    with pytest.raises(Fenced):
        permit.check()


def test_a_run_of_an_earlier_epoch_may_not_write(term: LeaseTerm) -> None:
    """The same process leads again, but another one may have led in between."""
    old = Fence(term)
    term.extend(NEXT, term.now())

    with pytest.raises(Fenced, match="no longer holds it as it did when the run began"):
        old.check()
    Fence(term).check()


def test_a_run_that_begins_without_the_lease_may_not_write(clock: Clock) -> None:
    """Not even after the Lease has been acquired."""
    term = LeaseTerm("team/web", TIMES, clock)
    early = Fence(term)
    with pytest.raises(Fenced):
        early.check()
    term.extend(EPOCH, clock.now)
    with pytest.raises(Fenced):
        early.check()


def test_an_ended_term_permits_nothing(term: LeaseTerm) -> None:
    """A released Lease may be taken at once."""
    fence = Fence(term)
    term.end()
    for refusing in (fence, Fence(term)):
        with pytest.raises(Fenced):
            refusing.permit()


def test_a_run_with_a_refused_write_gets_no_other_one_through(
    term: LeaseTerm, clock: Clock
) -> None:
    """Its next write may depend on the refused one."""
    fence = Fence(term)
    clock.now += 11
    with pytest.raises(Fenced):
        fence.check()
    term.extend(EPOCH, clock.now)
    with pytest.raises(Fenced):
        fence.check()


def test_without_leader_election_nothing_is_fenced() -> None:
    """There is no time limit either."""
    assert UNFENCED.permit() is None
    with Fences().reconciling(A):
        assert Fences().of(A).permit() is None


def test_the_writes_of_a_reconcile_are_bound_to_the_epoch_of_its_start(term: LeaseTerm) -> None:
    """Those of other resources, and those after it, to the present one."""
    fences = Fences(lambda _: term)
    with fences.reconciling(A):
        term.extend(NEXT, term.now())
        with pytest.raises(Fenced):
            fences.of(A).check()
        fences.of(B).check()
    fences.of(A).check()


def test_each_resource_has_the_term_of_its_lease(term: LeaseTerm, clock: Clock) -> None:
    """The end of one term fences only the resources that it covers."""
    other = LeaseTerm("team/shard-1", TIMES, clock)
    other.extend(EPOCH, clock.now)
    fences = Fences({A: term, B: other}.__getitem__)
    term.end()
    with pytest.raises(Fenced, match="team/web"):
        fences.of(A).check()
    fences.of(B).check()


async def test_the_first_refusal_cancels_the_run(term: LeaseTerm, clock: Clock) -> None:
    """A role that ignores errors does not go on."""
    fence, ended = Fence(term), asyncio.Event()

    async def play() -> None:
        clock.now += 11
        with pytest.raises(Fenced):
            fence.check()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(Fenced):
        await fence.guard(play)
    assert ended.is_set()


async def test_a_run_that_ends_after_the_term_has_no_result(term: LeaseTerm, clock: Clock) -> None:
    """Its verdict would be about a cluster that another replica changes."""

    async def play() -> str:
        clock.now += 11
        return "failed"

    with pytest.raises(Fenced):
        await Fence(term).guard(play)


async def test_a_run_inside_the_term_has_its_result(term: LeaseTerm) -> None:
    """Its errors are passed on, too."""

    async def play() -> str:
        return "ok"

    async def broken() -> str:
        raise ValueError("broken")

    assert await Fence(term).guard(play) == await UNFENCED.guard(play) == "ok"
    with pytest.raises(ValueError, match="broken"):
        await Fence(term).guard(broken)


async def test_a_run_that_is_cancelled_ends(term: LeaseTerm) -> None:
    """As when the operator stops."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def play() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.create_task(Fence(term).guard(play))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


def test_the_clock_counts_the_time_of_a_suspend() -> None:
    """CLOCK_BOOTTIME is never behind CLOCK_MONOTONIC, which stops during a suspend."""
    monotonic = time.clock_gettime(time.CLOCK_MONOTONIC)
    assert boot_time() >= monotonic
