"""Which changes of owned objects wake their owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operator_runner.kube.watching import EventType, MetadataEvent
from operator_runner.model import GVK, Cause, Json, ObjectRef, Playbook, Watch
from operator_runner.triggers.changes import Version, difference
from operator_runner.triggers.dependents import Dependents

WATCH = Watch(GVK("example.com", "v1", "Foo"), Playbook(role=Path("/roles/foo")))
OWNER = ObjectRef(WATCH.gvk, "default", "owner")
DEPLOYMENT = GVK("apps", "v1", "Deployment")
CHILD = ObjectRef(DEPLOYMENT, "default", "child")


def metadata(version: int, generation: int = 1, **more: Any) -> Json:
    return {
        "name": CHILD.name,
        "namespace": CHILD.namespace,
        "uid": "u1",
        "resourceVersion": str(version),
        "generation": generation,
    } | more


def manager(name: str, time: str, subresource: str = "") -> Json:
    return {"manager": name, "time": time, "subresource": subresource}


class Stream:
    """Stands for the API server's watch: the test says which events come."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[MetadataEvent] = asyncio.Queue()
        self.asked: list[tuple[GVK, str | None]] = []

    async def __call__(self, gvk: GVK, namespace: str | None) -> AsyncIterator[MetadataEvent]:
        self.asked.append((gvk, namespace))
        while True:
            yield await self.events.get()
            self.events.task_done()

    async def tell(self, type_: str, body: Json) -> None:
        self.events.put_nowait(MetadataEvent(EventType(type_), {"metadata": body}))
        await self.events.join()


class Woken(list[str]):
    """The causes that were enqueued, as people read them."""

    def __call__(self, ref: ObjectRef, cause: Cause) -> None:
        assert ref == OWNER
        self.append(str(cause))


@asynccontextmanager
async def dependents(
    namespaces: tuple[str, ...] = (),
) -> AsyncIterator[tuple[Dependents, Stream, Woken]]:
    stream, woken = Stream(), Woken()
    subject = Dependents(stream, woken, namespaces)
    try:
        yield subject, stream, woken
    finally:
        await subject.stop()


async def test_an_edit_by_others_wakes_the_owner_and_is_named() -> None:
    """A new generation and a deletion are told with object and verb; a repeat is not."""
    async with dependents() as (subject, stream, woken):
        subject.observed(OWNER, CHILD, metadata(10), WATCH)
        await stream.tell("MODIFIED", metadata(11, generation=2))
        await stream.tell("MODIFIED", metadata(11, generation=2))
        await stream.tell("DELETED", metadata(12, generation=2))
        assert woken == [
            "dependent: Deployment default/child changed",
            "dependent: Deployment default/child deleted",
        ]


async def test_a_status_wakes_nobody() -> None:
    """A resourceVersion without a new generation is the status or our own bookkeeping."""
    async with dependents() as (subject, stream, woken):
        subject.observed(OWNER, CHILD, metadata(10), WATCH)
        await stream.tell("MODIFIED", metadata(11))
        assert woken == []


async def test_a_write_of_ones_own_run_wakes_nobody() -> None:
    """Events that come while the run goes on are judged at its end, when its writes are known."""
    async with dependents() as (subject, stream, woken):
        with subject.during(OWNER):
            subject.observed(OWNER, CHILD, metadata(10), WATCH)
            await stream.tell("ADDED", metadata(10))
            await stream.tell("MODIFIED", metadata(11, generation=2))
            subject.wrote(OWNER, CHILD, "10", "create")
            subject.wrote(OWNER, CHILD, "11", "update")
        assert woken == []


async def test_an_edit_during_a_run_is_not_lost() -> None:
    """Somebody else's write between the run's own is told when the run has ended."""
    async with dependents() as (subject, stream, woken):
        with subject.during(OWNER):
            subject.observed(OWNER, CHILD, metadata(10), WATCH)
            subject.wrote(OWNER, CHILD, "10", "create")
            await stream.tell("ADDED", metadata(10))
            await stream.tell("MODIFIED", metadata(11, generation=2))
            subject.observed(OWNER, CHILD, metadata(11, generation=2), WATCH)
        assert len(woken) == 1


async def test_a_deletion_by_ones_own_run_wakes_nobody() -> None:
    """A role that deletes what it made is not run again for it."""
    async with dependents() as (subject, stream, woken):
        subject.observed(OWNER, CHILD, metadata(10), WATCH)
        with subject.during(OWNER):
            subject.wrote(OWNER, CHILD, "", "delete")
            await stream.tell("DELETED", metadata(11))
        assert woken == []


async def test_a_change_between_the_run_and_the_watch_is_seen() -> None:
    """What the first listing shows is compared with what the run itself saw."""
    async with dependents() as (subject, stream, woken):
        subject.observed(OWNER, CHILD, metadata(10), WATCH)
        await stream.tell("ADDED", metadata(12, generation=3))
        assert len(woken) == 1


async def test_events_from_before_the_run_are_stale() -> None:
    """An event that is older than what the run saw says nothing new."""
    async with dependents() as (subject, stream, woken):
        subject.observed(OWNER, CHILD, metadata(10, generation=2), WATCH)
        await stream.tell("MODIFIED", metadata(9, generation=1))
        assert woken == []


async def test_a_kind_is_watched_once_and_in_the_operators_namespaces() -> None:
    """One watch serves all objects of a kind in each namespace that the operator may see."""
    async with dependents(("a", "b")) as (subject, stream, _):
        for name in ("x", "y"):
            child = ObjectRef(DEPLOYMENT, "a", name)
            subject.observed(OWNER, child, metadata(1), WATCH)
        await asyncio.sleep(0)
        assert stream.asked == [(DEPLOYMENT, "a"), (DEPLOYMENT, "b")]


async def test_strangers_and_the_forgotten_wake_nobody() -> None:
    """Objects without an owner of ours, or whose owner is gone, are passed over."""
    async with dependents() as (subject, stream, woken):
        subject.observed(OWNER, CHILD, metadata(10), WATCH)
        subject.forget(OWNER)
        await stream.tell("DELETED", metadata(11))
        assert woken == []


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ([], [manager("kubectl", "t1")], "changed by kubectl"),
        ([manager("kubectl", "t1")], [manager("kubectl", "t2")], "changed by kubectl"),
        ([manager("lb", "t1", "status")], [manager("lb", "t2", "status")], ""),
        ([manager("kubectl", "t1")], [manager("kubectl", "t1")], "changed"),
    ],
)
def test_kinds_without_generation(old: list[Json], new: list[Json], word: str) -> None:
    """For a ConfigMap or Service the field managers tell a status from a change."""
    versions = [
        Version.of(metadata(10 + number, generation=0, managedFields=managed))
        for number, managed in enumerate((old, new))
    ]
    assert difference(*versions) == word


def test_a_replaced_object_is_news() -> None:
    """An object of the same name with another uid is not the one that was made."""
    other = Version.of(metadata(11, uid="u2"))
    assert difference(Version.of(metadata(10)), other) == "replaced"
