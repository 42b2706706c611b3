"""Owners that are woken again and again within a moment."""

from __future__ import annotations

import asyncio

import pytest

from operator_runner.controller.sources import debouncing
from operator_runner.controller.sources.debouncing import Debounced, Debouncer
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates
from tests.fakes.states import KnownStates

OWNER, OTHER = (ObjectRef(GVK("example.com", "v1", "Foo"), "default", name) for name in "ab")
CAUSES = [Cause(Trigger.DEPENDENT, f"Deployment default/d{number}") for number in range(5)]


@pytest.fixture
def woken() -> asyncio.Queue[tuple[ObjectRef, Cause]]:
    return asyncio.Queue()


@pytest.fixture
def states() -> ResourceStates:
    return KnownStates()


@pytest.fixture
def debouncer(
    states: ResourceStates,
    woken: asyncio.Queue[tuple[ObjectRef, Cause]],
    monkeypatch: pytest.MonkeyPatch,
) -> Debouncer:
    monkeypatch.setattr(debouncing, "_PAUSE_SECONDS", 0.05)
    return Debouncer(states, lambda ref, cause: woken.put_nowait((ref, cause)))


async def test_the_first_cause_is_passed_at_once_and_the_others_together(
    debouncer: Debouncer, woken: asyncio.Queue[tuple[ObjectRef, Cause]]
) -> None:
    """Each owner has a pause of its own; a cause that comes twice in it is one."""
    for cause in (*CAUSES, *CAUSES[1:]):
        debouncer.add(OWNER, cause)
    debouncer.add(OTHER, CAUSES[0])
    assert woken.qsize() == 2
    async with asyncio.timeout(60):
        given = [await woken.get() for _ in range(6)]
    assert given == [(OWNER, CAUSES[0]), (OTHER, CAUSES[0]), *((OWNER, c) for c in CAUSES[1:])]
    assert woken.empty()
    debouncer.stop()


async def test_events_of_a_deleted_owner_are_dropped(
    debouncer: Debouncer, states: ResourceStates, woken: asyncio.Queue[tuple[ObjectRef, Cause]]
) -> None:
    """Of two owners that wait, only the one that is left is woken."""
    for owner in (OWNER, OTHER):
        debouncer.add(owner, CAUSES[0])
        debouncer.add(owner, CAUSES[1])
    states.pop(OWNER)
    async with asyncio.timeout(60):
        given = [await woken.get() for _ in range(3)]
    assert given[2] == (OTHER, CAUSES[1])
    assert woken.empty()
    debouncer.stop()


async def test_causes_wait_for_further_ones_until_one_that_may_not(
    states: ResourceStates,
    woken: asyncio.Queue[tuple[ObjectRef, Cause]],
) -> None:
    """Waiting causes go with the next one; without one they end with the calm, or at the limit."""
    debouncer = Debouncer(states, lambda ref, cause: woken.put_nowait((ref, cause)), 3600)
    debouncer.add(OWNER, CAUSES[0], calm=3600)
    debouncer.add_group(OWNER, CAUSES[1:3], calm=3600)
    assert woken.empty()
    debouncer.add(OWNER, CAUSES[3])
    assert [woken.get_nowait() for _ in range(4)] == [(OWNER, cause) for cause in CAUSES[:4]]
    debouncer.add(OTHER, CAUSES[0], calm=0.01)
    async with asyncio.timeout(60):
        assert await woken.get() == (OTHER, CAUSES[0])
    debouncer.stop()


async def test_waits_are_bounded_and_end_with_a_run(
    states: ResourceStates,
    woken: asyncio.Queue[tuple[ObjectRef, Cause]],
) -> None:
    """A cause that waits is enqueued at the limit, and dropped when a run starts."""
    debouncer = Debouncer(states, lambda ref, cause: woken.put_nowait((ref, cause)), 0.05)
    debouncer.add(OWNER, CAUSES[0], calm=3600)
    states.of(OWNER).slot(Debounced).drop_wait()
    debouncer.add(OTHER, CAUSES[1], calm=3600)
    async with asyncio.timeout(60):
        assert await woken.get() == (OTHER, CAUSES[1])
    assert woken.empty()
    debouncer.stop()


async def test_a_resource_that_was_never_reconciled_is_enqueued_at_once(
    woken: asyncio.Queue[tuple[ObjectRef, Cause]],
) -> None:
    """It may be one of another replica: nothing is kept of it."""
    states = ResourceStates()
    debouncer = Debouncer(states, lambda ref, cause: woken.put_nowait((ref, cause)), 3600)
    for cause in CAUSES[:2]:
        debouncer.add(OWNER, cause, calm=3600)
    assert [woken.get_nowait() for _ in range(2)] == [(OWNER, cause) for cause in CAUSES[:2]]
    assert not list(states)
