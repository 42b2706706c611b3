"""Opening the port for Jobs while the API server has problems."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from operator_runner.app import job_serving
from operator_runner.app.job_serving import JobServing, JobSlots
from operator_runner.core.errors import ApiError, ConfigError, Conflict, Forbidden, Unavailable
from operator_runner.core.model import GVK, ObjectRef, Watch
from operator_runner.core.slot_assignment import slot_of

UID = "4d2ba2f0"
SLOT = slot_of(UID)
REF = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "a")


class Parts:
    """The server and the launcher: each step fails as often as the test lists errors for it."""

    def __init__(self, *, listing: Sequence[ApiError] = (), start: Sequence[ApiError] = ()) -> None:
        self.errors = {"listing": list(listing), "start": list(start)}
        self.done: list[str] = []
        self.adoptable: list[ObjectRef] = []

    def _do(self, step: str) -> None:
        if self.errors[step]:
            raise self.errors[step].pop(0)
        self.done.append(step)

    async def expect_adoptions(
        self, watches: Sequence[Watch], is_mine: Callable[[str], bool]
    ) -> None:
        """List the Jobs."""
        del watches
        await asyncio.sleep(0)
        self._do("listing")
        self.adoptable = [REF] if is_mine(UID) else []

    async def start(self) -> None:
        """Listen."""
        self._do("start")

    async def renew(self) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Close the port."""
        self.done.append("stop")

    def leave(self) -> None:
        """Keep the Jobs."""
        self.done.append("leave")

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Leave the Jobs of another replica."""
        self.done.append(f"forget {is_lost(UID)}")


async def test_the_port_opens_when_the_api_server_is_available_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Lease is renewed and signals are observed meanwhile: it is one of the parallel tasks."""
    monkeypatch.setattr(job_serving, "_RETRY_SECONDS", 0.0)
    parts: Any = Parts(
        listing=[Unavailable("503")], start=[Unavailable("no answer"), Conflict("409")]
    )
    serving = JobServing(parts, parts, ())
    waiting = asyncio.create_task(serving.adoptable())
    running = asyncio.create_task(serving.run())
    async with asyncio.timeout(60):
        assert await waiting == [REF]
    assert parts.done[-2:] == ["listing", "start"]
    running.cancel()
    await asyncio.wait({running})


async def test_missing_permissions_end_the_operator_with_a_hint() -> None:
    """No retry can help, so nothing waits for one."""
    parts: Any = Parts(listing=[Forbidden("cannot list jobs", 403)])
    with pytest.raises(ConfigError, match="cannot list jobs; check the permissions"):
        await JobServing(parts, parts, ()).run()


async def test_jobs_are_kept_before_the_port_closes() -> None:
    """A run that ends when its connections do must not delete its Job."""
    parts: Any = Parts()
    await JobServing(parts, parts, ()).leave()
    assert parts.done == ["leave", "stop"]


async def test_jobs_are_listed_for_each_gained_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica decides about their Jobs from then on, until it releases the slot."""
    monkeypatch.setattr(job_serving, "_RETRY_SECONDS", 0.0)
    parts: Any = Parts(listing=[Unavailable("503")])
    slots = JobSlots()
    serving = JobServing(parts, parts, (), slots)
    listed: asyncio.Queue[tuple[list[ObjectRef], frozenset[int]]] = asyncio.Queue()
    await serving.open()
    assert parts.done == ["start"]
    following = asyncio.create_task(
        serving.follow(slots, lambda refs, gained: listed.put_nowait(([*refs], gained)))
    )
    async with asyncio.timeout(60):
        slots.gained(frozenset({SLOT, 1 - SLOT % 2}))
        assert not slots.is_listed(UID)
        assert await listed.get() == ([REF], frozenset({SLOT, 1 - SLOT % 2}))
        assert slots.is_listed(UID)
        serving.released(frozenset({SLOT}))
        assert not slots.is_listed(UID)
        assert parts.done == ["start", "listing", "forget True"]
        slots.gained(frozenset({1}))
        assert await listed.get() == ([], frozenset({1}))
    following.cancel()
    await asyncio.wait({following})


async def test_a_slot_that_is_released_while_its_jobs_are_listed_is_not_decided_about() -> None:
    """Otherwise this replica would refuse Jobs that the next owner adopts."""
    slots = JobSlots()
    slots.gained(frozenset({SLOT}))
    await slots.begin_listing()
    assert slots.is_listing(UID)
    slots.released(frozenset({SLOT}))
    assert not slots.is_listing(UID)
    assert slots.end_listing() == frozenset()
    assert not slots.is_listed(UID)
