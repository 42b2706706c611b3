"""Which changes of owned objects wake their owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.controller.predicates.dependent_changes import Version, difference
from operator_runner.controller.sources import debouncing
from operator_runner.controller.sources import dependents as dependents_module
from operator_runner.controller.sources.dependents import Dependents
from operator_runner.core.model import GVK, Cause, Json, ObjectRef, RunContent, Watch
from operator_runner.kube.object_readiness import Health, Readiness, refusal_of
from operator_runner.kube.watch import EventType, Extraction, MetadataEvent
from tests.fakes.states import WatchedDependents

WATCH = Watch(GVK("example.com", "v1", "Foo"), RunContent(role=Path("/roles/foo")))
POD = GVK("", "v1", "Pod")
EVENT = GVK("events.k8s.io", "v1", "Event")
OWNER = ObjectRef(WATCH.gvk, "default", "owner")
DEPLOYMENT = GVK("apps", "v1", "Deployment")
CHILD = ObjectRef(DEPLOYMENT, "default", "child")
READY = Health(Readiness.READY, behind=False)
NOT_READY = Health(Readiness.NOT_READY, behind=False)
FAILED = Health(Readiness.FAILED, behind=False)
BECAME_READY = "dependent: Deployment default/child became ready"


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process events of a pause some time later."""
    monkeypatch.setattr(debouncing, "_PAUSE_SECONDS", 0.01)


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
    """A fake watch of the API server, whose events the test sends."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[MetadataEvent] = asyncio.Queue()
        self.pods: asyncio.Queue[MetadataEvent] = asyncio.Queue()
        """Events of the watch of Pods, if that is another one."""
        self.refusals: asyncio.Queue[MetadataEvent] = asyncio.Queue()
        """Events of the watch of Events about refused Pods."""
        self.has_pods = False
        self.requested: list[tuple[GVK, str | None]] = []

    async def __call__(
        self, gvk: GVK, namespace: str | None, extraction: Extraction | None = None
    ) -> AsyncIterator[MetadataEvent]:
        self.requested.append((gvk, namespace))
        others = {POD: self.pods, EVENT: self.refusals} if self.has_pods else {}
        events = others.get(gvk, self.events)
        while True:
            event = await events.get()
            if extraction is not None and event.type in {EventType.ADDED, EventType.MODIFIED}:
                event = replace(event, extracted=extraction.function(event.body))
            yield event
            events.task_done()

    async def send(self, type_: str, body: Json, health: Health | None = None) -> None:
        self.events.put_nowait(MetadataEvent(EventType(type_), {"metadata": body}, health))
        await self.events.join()

    async def send_pod(self, body: Json, health: Health) -> None:
        self.pods.put_nowait(MetadataEvent(EventType.MODIFIED, {"metadata": body}, health))
        await self.pods.join()

    async def send_refusal(self, regarding: Json, time: str) -> None:
        note = 'Error creating: pods "x" is forbidden: no room'
        found = refusal_of(
            {"reason": "FailedCreate", "note": note, "regarding": regarding, "eventTime": time}
        )
        self.refusals.put_nowait(MetadataEvent(EventType.ADDED, {"metadata": {}}, None, found))
        await self.refusals.join()

    async def synced(self, uids: list[str], version: int) -> None:
        listed = {"uids": frozenset(uids), "resourceVersion": str(version)}
        self.events.put_nowait(MetadataEvent(EventType.SYNCED, listed))
        await self.events.join()


class Woken(list[str]):
    """The causes that were enqueued, as people read them."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: list[Cause] = []
        self._news = asyncio.Event()

    def __call__(self, ref: ObjectRef, cause: Cause) -> None:
        assert ref == OWNER
        self.append(str(cause))
        self.causes.append(cause)
        self._news.set()

    async def reach(self, count: int) -> None:
        """Wait until there are this many."""
        async with asyncio.timeout(60):
            while len(self) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def dependents(
    namespaces: tuple[str, ...] = (),
    watches: tuple[Watch, ...] = (),
    *,
    wait: float = 0.0,
) -> AsyncIterator[tuple[WatchedDependents, Stream, Woken]]:
    stream, woken = Stream(), Woken()
    subject = WatchedDependents(stream, woken, namespaces, watches, wait=wait)
    try:
        yield subject, stream, woken
    finally:
        await subject.stop()


async def test_an_edit_by_others_starts_a_run_and_is_named() -> None:
    """Causes of a new generation and a deletion have object and verb; repetitions have no cause."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
        await stream.send("MODIFIED", metadata(11, generation=2))
        await stream.send("MODIFIED", metadata(11, generation=2))
        await stream.send("DELETED", metadata(12, generation=2))
        assert woken == [
            "dependent: Deployment default/child changed",
            "dependent: Deployment default/child deleted",
        ]


async def test_a_status_starts_no_run() -> None:
    """A resourceVersion without a new generation is the status or our own bookkeeping."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
        await stream.send("MODIFIED", metadata(11))
        assert woken == []


async def test_an_own_write_starts_no_run() -> None:
    """Events during the run are evaluated at its end, when its writes are known."""
    async with dependents() as (subject, stream, woken):
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
            await stream.send("ADDED", metadata(10))
            await stream.send("MODIFIED", metadata(11, generation=2))
            subject.on_write(OWNER, CHILD, "10", "create")
            subject.on_write(OWNER, CHILD, "11", "update")
        assert woken == []


async def test_an_edit_during_a_run_is_not_lost() -> None:
    """A write by others between the run's own is enqueued when the run has ended."""
    async with dependents() as (subject, stream, woken):
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
            subject.on_write(OWNER, CHILD, "10", "create")
            await stream.send("ADDED", metadata(10))
            await stream.send("MODIFIED", metadata(11, generation=2))
            subject.on_dependent(OWNER, CHILD, metadata(11, generation=2), WATCH)
        assert len(woken) == 1


async def test_an_own_deletion_starts_no_run() -> None:
    """A role that deletes its own objects is not run again."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
        with subject.hold_events(OWNER):
            subject.on_write(OWNER, CHILD, "", "delete")
            await stream.send("DELETED", metadata(11))
        assert woken == []


async def test_a_change_between_the_run_and_the_watch_is_seen() -> None:
    """The first list is compared with the responses to the run."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
        await stream.send("ADDED", metadata(12, generation=3))
        assert len(woken) == 1


async def test_events_from_before_the_run_are_stale() -> None:
    """An event that is older than the version that the run read is ignored."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10, generation=2), WATCH)
        await stream.send("MODIFIED", metadata(9, generation=1))
        assert woken == []


async def test_a_kind_is_watched_once_and_in_the_operators_namespaces() -> None:
    """One watch serves all objects of a kind in each namespace of the operator."""
    async with dependents(("a", "b")) as (subject, stream, _):
        for name in ("x", "y"):
            child = ObjectRef(DEPLOYMENT, "a", name)
            subject.on_dependent(OWNER, child, metadata(1), WATCH)
        await asyncio.sleep(0)
        assert stream.requested == [(DEPLOYMENT, "a"), (DEPLOYMENT, "b")]


async def test_a_deletion_before_the_watch_began_is_seen() -> None:
    """Objects missing in the first list are deleted, unless they were created after it."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
        later = ObjectRef(DEPLOYMENT, "default", "later")
        subject.on_dependent(OWNER, later, metadata(12, uid="u2") | {"name": "later"}, WATCH)
        await stream.synced(["u1"], 11)
        assert woken == []
        await stream.synced([], 11)
        assert woken == ["dependent: Deployment default/child deleted"]


async def test_objects_without_a_known_owner_start_no_run() -> None:
    """Objects without a known owner, or whose owner was deleted, are ignored."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH)
        subject.states.pop(OWNER)
        await stream.send("DELETED", metadata(11))
        assert woken == []


async def test_readiness_reconciles_the_owner_in_both_directions() -> None:
    """The first status of a new object causes no reconcile; each later change does."""
    async with dependents() as (subject, stream, woken):
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, NOT_READY)
            subject.on_write(OWNER, CHILD, "10", "create")
            await stream.send("ADDED", metadata(10), NOT_READY)
        await stream.send("MODIFIED", metadata(11), NOT_READY)
        assert woken == []
        await stream.send("MODIFIED", metadata(12), READY)
        await stream.send("MODIFIED", metadata(13), READY)
        assert woken == [BECAME_READY]
        await stream.send("MODIFIED", metadata(14), NOT_READY)
        await stream.send("MODIFIED", metadata(15), FAILED)
        await woken.reach(3)
        assert woken[1:] == [
            "dependent: Deployment default/child became not ready",
            "dependent: Deployment default/child failed",
        ]


async def test_a_custom_kind_without_conditions_is_not_unready() -> None:
    """Neither its first status nor one without a known condition starts a run."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, Health())
        await stream.send("MODIFIED", metadata(11), Health())
        await stream.send("MODIFIED", metadata(12), NOT_READY)
        assert woken == []
        await stream.send("MODIFIED", metadata(13), READY)
        assert woken == [BECAME_READY]


async def test_readiness_that_changes_during_a_run_starts_another_one() -> None:
    """Even if it is equal again when the run ends: the role may have read a value in between."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        with subject.hold_events(OWNER):
            await stream.send("MODIFIED", metadata(11), NOT_READY)
            await stream.send("MODIFIED", metadata(12), READY)
            assert woken == []
        await woken.reach(2)
        assert woken[0] == "dependent: Deployment default/child became not ready"


async def test_readiness_after_an_own_write_reconciles_the_owner() -> None:
    """The version is that of the run's own write, and its status is not an echo."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(11, generation=2), WATCH, NOT_READY)
            subject.on_write(OWNER, CHILD, "11", "patch")
            await stream.send("MODIFIED", metadata(11, generation=2), NOT_READY)
        assert woken == ["dependent: Deployment default/child became not ready"]


async def roll_out(subject: Dependents, stream: Stream, version: int) -> None:
    """Change the object in a run of an hour, and let its controller begin a rollout."""
    loop = asyncio.get_running_loop()
    written = metadata(version, generation=version)
    begun = metadata(version + 1, generation=version)
    behind = Health(Readiness.READY, behind=True)
    with pytest.MonkeyPatch.context() as clock, subject.hold_events(OWNER):
        subject.on_dependent(OWNER, CHILD, written, WATCH, behind, is_read=False)
        subject.on_write(OWNER, CHILD, str(version), "patch")
        await stream.send("MODIFIED", written, behind)
        await stream.send("MODIFIED", begun, NOT_READY)
        end = loop.time() + 3600
        clock.setattr(loop, "time", lambda: end)


@pytest.mark.parametrize("end", ["became ready", "failed", "deleted"])
async def test_a_rollout_by_a_run_starts_one_run_at_its_end(end: str) -> None:
    """Its begin waits for its end, however it ends; later it does not wait."""
    async with dependents(wait=3600) as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        await roll_out(subject, stream, 11)
        assert woken == []
        if end == "deleted":
            await stream.send("DELETED", metadata(13, generation=11))
        else:
            health = READY if end == "became ready" else FAILED
            await stream.send("MODIFIED", metadata(13, generation=11), health)
        await woken.reach(1 if end == "deleted" else 2)
        assert woken[-1] == f"dependent: Deployment default/child {end}"
        if end == "became ready":
            assert woken[0] == "dependent: Deployment default/child became not ready"
            await stream.send("MODIFIED", metadata(14, generation=11), NOT_READY)
            await woken.reach(3)


async def test_a_rollout_does_not_wait_after_a_read_of_the_status_before() -> None:
    """The run may have reported that the object is ready."""
    async with dependents(wait=3600) as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        behind = Health(Readiness.READY, behind=True)
        read = metadata(11, generation=11)
        subject.on_dependent(OWNER, CHILD, read, WATCH, behind, is_read=True)
        await roll_out(subject, stream, 11)
        assert woken == ["dependent: Deployment default/child became not ready"]


async def test_an_edit_that_changes_no_readiness_is_one_reconcile() -> None:
    """A run's write of a spec causes no reconcile if the object stays ready."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        with subject.hold_events(OWNER):
            behind = Health(Readiness.READY, behind=True)
            written = metadata(11, generation=2)
            subject.on_dependent(OWNER, CHILD, written, WATCH, behind, is_read=False)
            subject.on_write(OWNER, CHILD, "11", "patch")
            await stream.send("MODIFIED", metadata(11, generation=2), behind)
        await stream.send("MODIFIED", metadata(12, generation=2), READY)
        assert woken == []


async def test_a_status_that_was_read_too_early_is_read_again() -> None:
    """A run that has read a status of the spec before is followed by one that reads it again."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        with subject.hold_events(OWNER):
            subject.on_write(OWNER, CHILD, "11", "patch")
            behind = Health(Readiness.READY, behind=True)
            subject.on_dependent(OWNER, CHILD, metadata(11, generation=2), WATCH, behind)
            await stream.send("MODIFIED", metadata(11, generation=2), behind)
        assert woken == []
        await stream.send("MODIFIED", metadata(12, generation=2), READY)
        assert woken == ["dependent: Deployment default/child status is up to date"]


async def test_a_status_that_shows_readiness_waits_for_controllers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a moment, then a run follows once they have observed what was written."""
    judging = replace(WATCH, kstatus=True)
    behind = Health(Readiness.READY, behind=True)

    def write(subject: Dependents, version: int) -> None:
        written = metadata(version, generation=version)
        subject.on_dependent(OWNER, CHILD, written, judging, behind, is_read=False)
        subject.on_write(OWNER, CHILD, str(version), "patch")

    async with dependents(watches=(judging,)) as (subject, stream, woken):
        assert subject.catching_up(OWNER) is None
        write(subject, 10)
        waiting = asyncio.ensure_future(some(subject.catching_up(OWNER)))
        await stream.send("MODIFIED", metadata(11, generation=10), READY)
        await waiting
        assert subject.readiness(OWNER).ready is True
        assert subject.catching_up(OWNER) is None
        assert woken == []

        write(subject, 12)
        monkeypatch.setattr(dependents_module, "_CATCH_UP_SECONDS", 0.01)
        await some(subject.catching_up(OWNER))
        assert subject.readiness(OWNER).ready is False
        await stream.send("MODIFIED", metadata(12, generation=12), behind)
        await stream.send("MODIFIED", metadata(13, generation=12), READY)
        assert woken == ["dependent: Deployment default/child status is up to date"]
        assert stream.requested == [(DEPLOYMENT, None)]


async def some(waiting: Awaitable[None] | None) -> None:
    assert waiting is not None
    await waiting


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_new_object_without_replicas_starts_a_run_only_if_its_status_was_read(
    is_read: bool,
) -> None:
    """Its readiness does not change when its controller observes it."""
    async with dependents() as (subject, stream, woken):
        with subject.hold_events(OWNER):
            behind = Health(Readiness.READY, behind=True)
            subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, behind, is_read=is_read)
            subject.on_write(OWNER, CHILD, "10", "create")
            await stream.send("ADDED", metadata(10), behind)
        assert woken == []
        await stream.send("MODIFIED", metadata(11), READY)
        await stream.send("MODIFIED", metadata(12), READY)
        assert woken == ["dependent: Deployment default/child status is up to date"] * is_read


async def test_readiness_before_the_response_reconciles_the_owner() -> None:
    """The event may arrive before the response with the object's owner."""
    async with dependents() as (subject, stream, woken):
        other = ObjectRef(DEPLOYMENT, "default", "other")
        subject.on_dependent(OWNER, other, metadata(1) | {"name": "other"}, WATCH, READY)
        with subject.hold_events(OWNER):
            await stream.send("MODIFIED", metadata(11), READY)
            subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, NOT_READY)
            subject.on_write(OWNER, CHILD, "10", "create")
        assert woken == [BECAME_READY]


async def test_a_recreated_object_is_new() -> None:
    """After a deletion nothing is ready that could become unready."""
    async with dependents() as (subject, stream, woken):
        subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, READY)
        await stream.send("DELETED", metadata(11))
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(12, uid="u2"), WATCH, NOT_READY)
            subject.on_write(OWNER, CHILD, "12", "create")
            await stream.send("ADDED", metadata(12, uid="u2"), NOT_READY)
            await stream.send("DELETED", metadata(11))
        assert woken == ["dependent: Deployment default/child deleted"]


async def test_the_first_readiness_is_not_a_loop() -> None:
    """The first readiness of an object starts a run, although the previous run has written it."""
    async with dependents() as (subject, stream, woken):
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(10), WATCH, NOT_READY)
            subject.on_write(OWNER, CHILD, "10", "create")
        for version, health in enumerate((READY, NOT_READY, READY), start=11):
            await stream.send("MODIFIED", metadata(version), health)
        await woken.reach(3)
        echoes = [subject.writes.is_echo(OWNER, cause) for cause in woken.causes]
        assert echoes == [False, True, True]


@pytest.mark.parametrize(
    "watch",
    [
        replace(WATCH, watch_dependent_resources=False),
        replace(WATCH, blacklist=frozenset({DEPLOYMENT})),
    ],
)
async def test_a_watch_may_do_without_dependents(watch: Watch) -> None:
    """Kinds in the blacklist are not watched: neither edits nor readiness start a run."""
    async with dependents() as (subject, stream, woken):
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(10), watch, NOT_READY)
            subject.on_write(OWNER, CHILD, "10", "create")
        await asyncio.sleep(0)
        assert stream.requested == []
        assert woken == []


async def test_the_newest_state_of_objects_is_judged() -> None:
    """Also during a run, of responses and events; an older one, and a deleted object, are not."""
    judging = replace(WATCH, kstatus=True)
    async with dependents(watches=(judging,)) as (subject, stream, woken):
        stream.has_pods = True
        assert subject.readiness(OWNER).ready is None
        with subject.hold_events(OWNER):
            subject.on_dependent(OWNER, CHILD, metadata(10), judging, NOT_READY)
            assert subject.readiness(OWNER).reason == "DependentNotReady"
            await stream.send("MODIFIED", metadata(12), READY)
            subject.on_dependent(OWNER, CHILD, metadata(11), judging, NOT_READY)
            assert subject.readiness(OWNER).ready is True
        refused = replace(FAILED, reason="QuotaExceeded", message="no room")
        await stream.send("MODIFIED", metadata(13), refused)
        assert subject.readiness(OWNER).message == "Deployment child has failed: no room"
        await stream.send("MODIFIED", metadata(14), replace(refused, reason="Other"))
        await woken.reach(3)
        assert woken[-1] == "dependent: Deployment default/child is not ready: Other"
        await stream.send("DELETED", metadata(15))
        assert subject.readiness(OWNER).ready is True
        subject.states.pop(OWNER)
        assert subject.readiness(OWNER).ready is None


def pod(uid: str, owner: str, kind: str, **labels: str) -> Json:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": True}
    named = {"name": uid, "namespace": "default", "uid": uid, "resourceVersion": "1"}
    return {**named, "labels": labels, "ownerReferences": [reference]}


async def test_pods_have_the_cause_of_a_workload_while_it_is_not_ready() -> None:
    """The first in the order of causes; they are watched only then, and no cause is a run twice."""
    judging = replace(WATCH, kstatus=True)
    pulling, crashing = (
        replace(FAILED, reason=reason, message=f"a {reason}")
        for reason in ("ImagePullFailed", "ContainerCrashes")
    )
    async with dependents(watches=(judging,)) as (subject, stream, woken):
        stream.has_pods = True
        subject.on_dependent(OWNER, CHILD, metadata(10), judging, READY)
        await stream.send("MODIFIED", metadata(11), NOT_READY)
        await woken.reach(1)
        ours = pod("a", "child-5x", "ReplicaSet", **{"pod-template-hash": "5x"})
        await stream.send_pod(pod("other", "other", "StatefulSet"), pulling)
        await stream.send_pod({**ours, "uid": "b"}, crashing)
        await stream.send_pod(ours, crashing)
        await stream.send_pod({**ours, "uid": "c"}, NOT_READY)
        assert stream.requested[1:] == [(POD, "default"), (EVENT, "default")]
        assert subject.readiness(OWNER).reason == "ContainerCrashes"
        await stream.send_pod(ours, pulling)
        await woken.reach(3)
        assert [text.rpartition(": ")[2] for text in woken[1:]] == [
            "ContainerCrashes",
            "ImagePullFailed",
        ]
        found = subject.readiness(OWNER)
        assert found.message == "Deployment child is not ready: a ImagePullFailed"
        listed = {"uids": frozenset(["b"]), "resourceVersion": "9"}
        stream.pods.put_nowait(MetadataEvent(EventType.SYNCED, listed))
        await stream.pods.join()
        assert subject.readiness(OWNER).reason == "ContainerCrashes"
        await stream.send("MODIFIED", metadata(12), READY)
        assert subject.readiness(OWNER).ready is True
        await stream.send("MODIFIED", metadata(13), NOT_READY)
        assert subject.readiness(OWNER).reason == "DependentNotReady"


async def test_refused_pods_are_the_first_cause_until_one_is_created() -> None:
    """Only their Events have it; retries of a refusal, and older ones, start no run."""
    judging = replace(WATCH, kstatus=True)
    workload = ObjectRef(GVK("apps", "v1", "StatefulSet"), "default", "db")
    regarding = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"} | {
        "namespace": "default"
    }
    first = pod("a", "db", "StatefulSet") | {"creationTimestamp": "2026-01-05T12:00:00Z"}
    crashing = replace(FAILED, reason="ContainerCrashes", message="it crashes")
    async with dependents(watches=(judging,)) as (subject, stream, woken):
        stream.has_pods = True
        subject.on_dependent(OWNER, workload, metadata(10), judging, NOT_READY)
        await stream.send_pod(first, crashing)
        await woken.reach(1)
        await stream.send_refusal(regarding, "2026-01-05T12:00:09.5Z")
        await woken.reach(2)
        for late in ("2026-01-05T12:20:00Z", "2026-01-05T12:10:00Z"):
            await stream.send_refusal(regarding, late)
        await stream.send_refusal({**regarding, "name": "other"}, "2026-01-05T12:30:00Z")
        await stream.send_pod(first, crashing)
        found = subject.readiness(OWNER)
        assert (found.reason, found.message) == (
            "FailedCreate",
            "StatefulSet db is not ready: Pods are forbidden: no room",
        )
        later = {**first, "uid": "b", "creationTimestamp": "2026-01-05T12:20:01Z"}
        await stream.send_pod(later, NOT_READY)
        await woken.reach(3)
        assert subject.readiness(OWNER).reason == "ContainerCrashes"
        await stream.send_refusal(regarding, "2026-01-05T12:20:02Z")
        await woken.reach(4)
        await stream.send_pod(first, NOT_READY)
        await stream.send_pod({**later, "creationTimestamp": "2026-01-05T12:20:03Z"}, NOT_READY)
        await woken.reach(5)
        assert [text.partition("not ready: ")[2] for text in woken] == [
            "ContainerCrashes",
            "FailedCreate",
            "ContainerCrashes",
            "FailedCreate",
            "its Pods are created",
        ]
        assert subject.readiness(OWNER).reason == "DependentNotReady"
        await stream.send_refusal({**regarding, "name": "known"}, "2026-01-05T12:20:04Z")
        known = replace(workload, name="known")
        subject.on_dependent(OWNER, known, metadata(11), judging, NOT_READY)
        await stream.send_refusal({**regarding, "name": "known"}, "2026-01-05T12:20:05Z")
        created = pod("c", "known", "StatefulSet") | {"creationTimestamp": "2026-01-05T12:20:06Z"}
        await stream.send_pod(created, NOT_READY)
        await woken.reach(6)
        assert woken[-1].endswith("StatefulSet default/known is not ready: its Pods are created")


CLUSTER_ROLE = ObjectRef(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"), "", "child")


@pytest.mark.parametrize(
    ("namespace", "requested", "expected"),
    [("default", False, 0), ("default", True, 1), ("", False, 1)],
)
async def test_cluster_scoped_dependents_reconcile_their_owner_if_watched(
    namespace: str, requested: bool, expected: int
) -> None:
    """They start a run of a namespaced owner only if its watch enables it."""
    stream, woken = Stream(), []
    owner = ObjectRef(WATCH.gvk, namespace, "owner")
    watch = replace(WATCH, watch_cluster_scoped_resources=requested)
    subject = WatchedDependents(stream, lambda ref, _: woken.append(ref), ("default",))
    subject.on_dependent(owner, CLUSTER_ROLE, metadata(10) | {"namespace": ""}, watch)
    if expected:
        await stream.send("DELETED", metadata(11) | {"namespace": ""})
    await asyncio.sleep(0)
    assert stream.requested == [(CLUSTER_ROLE.gvk, None)] * expected
    assert woken == [owner] * expected
    await subject.stop()


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ([], [manager("kubectl", "t1")], "changed by kubectl"),
        ([manager("kubectl", "t1")], [manager("kubectl", "t2")], "changed by kubectl"),
        ([manager("lb", "t1", "status")], [manager("lb", "t2", "status")], ""),
        ([manager("kubectl", "t1")], [manager("kubectl", "t1")], "changed"),
    ],
)
def test_kinds_without_generation_are_compared_by_managed_fields(
    old: list[Json], new: list[Json], word: str
) -> None:
    """For a ConfigMap or Service the field managers distinguish a status from a change."""
    versions = [
        Version.of(metadata(10 + number, generation=0, managedFields=managed))
        for number, managed in enumerate((old, new))
    ]
    assert difference(*versions) == word


def test_a_replaced_object_is_a_change() -> None:
    """An object of the same name with another uid is not the one that was made."""
    other = Version.of(metadata(11, uid="u2"))
    assert difference(Version.of(metadata(10)), other) == "replaced"


async def test_objects_of_a_new_resource_should_be_missing() -> None:
    """In its first run; not those that another resource owns, or that are not watched."""
    cluster_role = ObjectRef(GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"), "", "child")
    async with dependents() as (subject, _, _):

        def newest(ref: ObjectRef, watch: Watch = WATCH) -> bytes | None:
            return subject.newest(OWNER, ref, watch)

        with subject.hold_events(OWNER):
            assert newest(CHILD) is None
        with subject.hold_events(OWNER, is_new=True):
            assert newest(CHILD) == b""
            assert newest(CHILD, replace(WATCH, blacklist=frozenset({CHILD.gvk}))) is None
            assert newest(cluster_role) is None
            subject.on_dependent(replace(OWNER, name="other"), CHILD, metadata(10), WATCH)
            assert newest(CHILD) is None
        assert newest(replace(CHILD, name="new")) is None
