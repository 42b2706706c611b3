"""Owners that are woken again and again within a moment."""

from __future__ import annotations

import asyncio

import pytest

from operator_runner.controller.sources import debouncing
from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger

OWNER, OTHER = (ObjectRef(GVK("example.com", "v1", "Foo"), "default", name) for name in "ab")
CAUSES = [Cause(Trigger.DEPENDENT, f"Deployment default/d{number}") for number in range(5)]


@pytest.fixture
def woken() -> asyncio.Queue[tuple[ObjectRef, Cause]]:
    return asyncio.Queue()


@pytest.fixture
def debouncer(
    woken: asyncio.Queue[tuple[ObjectRef, Cause]], monkeypatch: pytest.MonkeyPatch
) -> Debouncer:
    monkeypatch.setattr(debouncing, "_PAUSE_SECONDS", 0.05)
    return Debouncer(lambda ref, cause: woken.put_nowait((ref, cause)))


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
    debouncer: Debouncer, woken: asyncio.Queue[tuple[ObjectRef, Cause]]
) -> None:
    """Of two owners that wait, only the one that is left is woken."""
    for owner in (OWNER, OTHER):
        debouncer.add(owner, CAUSES[0])
        debouncer.add(owner, CAUSES[1])
    debouncer.forget(OWNER)
    async with asyncio.timeout(60):
        given = [await woken.get() for _ in range(3)]
    assert given[2] == (OTHER, CAUSES[1])
    assert woken.empty()
    debouncer.stop()
