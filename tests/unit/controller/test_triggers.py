"""Which changes of trigger objects lead to runs of which resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operator_runner.controller.predicates.wake_on_fields import (
    ExpressionPlace,
    FailedExpression,
    WakeOnFields,
)
from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.triggers import Sinks, Triggers
from operator_runner.core.model import (
    GVK,
    Cause,
    Json,
    LabelSelector,
    ObjectRef,
    ObjectTrigger,
    RunContent,
    WakeOn,
    Watch,
)
from operator_runner.kube.watch import EventType, MetadataEvent
from tests.fakes.states import KnownStates
from tests.support.background import in_background
from tests.unit.controller.test_dependents import Stream
from tests.unit.controller.test_references import watches_of

FOO = GVK("example.com", "v1", "Foo")
POD, NAMESPACE = GVK("", "v1", "Pod"), GVK("", "v1", "Namespace")


def ref(name: str, namespace: str = "ns") -> ObjectRef:
    return ObjectRef(FOO, namespace, name)


def resource(uid: str = "u", **spec: Any) -> Json:
    return {"metadata": {"uid": uid}, "spec": spec}


@dataclass
class World:
    """Triggers with fake streams, and the enqueued keys."""

    triggers: Triggers
    streams: dict[GVK, Stream]
    failed: list[FailedExpression]
    recovered: list[ExpressionPlace]
    woken: list[tuple[str, str]] = field(default_factory=list)
    ignored: set[ObjectRef] = field(default_factory=set)

    def take(self) -> list[tuple[str, str]]:
        """Return names and causes since the last call, sorted."""
        found = sorted(self.woken)
        self.woken.clear()
        return found

    def names(self) -> list[str]:
        """Return the names alone."""
        return [name for name, _ in self.take()]

    async def send(self, type_: str, name: str, version: int, gvk: GVK = POD, **more: Any) -> None:
        """Send an event of an object in the namespace ns; `more` is of the metadata."""
        namespace: Json = {} if gvk == NAMESPACE else {"namespace": "ns"}
        fields: Json = {key: more.pop(key) for key in ("spec", "status") if key in more}
        metadata: Json = {
            "name": name,
            **namespace,
            "uid": name,
            "resourceVersion": str(version),
            **more,
        }
        body = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **fields}
        stream = self.streams[gvk]
        stream.events.put_nowait(MetadataEvent(EventType(type_), body))
        await stream.events.join()


@asynccontextmanager
async def world(*triggers: ObjectTrigger, wake_on: tuple[WakeOn, ...] = ()) -> AsyncIterator[World]:
    role = RunContent(role=Path("/roles/foo"))
    watch = Watch(FOO, role, triggers=triggers, wake_on=wake_on)
    found: World
    failed: list[FailedExpression] = []
    recovered: list[ExpressionPlace] = []

    def enqueue(resource_: ObjectRef, cause: Cause) -> None:
        found.woken.append((resource_.name, str(cause)))

    subject = Triggers(
        [watch],
        lambda each: each not in found.ignored,
        Sinks(enqueue, failed.append, recovered=recovered.append),
        Debouncer(KnownStates(), enqueue),
        WakeOnFields([watch], failed.append),
    )
    found = World(subject, {each.gvk: Stream() for each in triggers}, failed, recovered)
    async with in_background(watches_of(subject.subscriptions(), found.streams).run()):
        yield found


async def test_changes_of_an_object_lead_to_runs() -> None:
    """Created, changed and deleted ones; not those that existed, nor a write of the status."""
    async with world(ObjectTrigger(POD)) as it:
        for name in "ab":
            it.triggers.on_change(ref(name), resource())
        it.triggers.on_change(ref("other", "elsewhere"), resource())
        await it.send("ADDED", "old", 1, generation=1)
        await it.streams[POD].synced(["old"], 1)
        await it.send("MODIFIED", "old", 2, generation=1)
        assert it.take() == []
        await it.send("ADDED", "new", 3)
        assert it.take() == [(name, "trigger: Pod ns/new created") for name in "ab"]
        await it.send("MODIFIED", "old", 4, generation=2)
        assert it.take() == [(name, "trigger: Pod ns/old changed") for name in "ab"]
        it.triggers.on_change(ref("a"), None)
        it.ignored.add(ref("b"))
        await it.send("DELETED", "old", 5)
        assert it.take() == []
        it.ignored.clear()
        await it.send("DELETED", "new", 6)
        await it.send("DELETED", "unknown", 7)
        assert it.take() == [("b", "trigger: Pod ns/new deleted")]


async def test_an_object_without_namespace_leads_to_runs_everywhere() -> None:
    """By name too; a resource without namespace belongs to objects of all namespaces."""
    named = ObjectTrigger(NAMESPACE, name="metadata.annotations.report")
    inside = ObjectTrigger(POD)
    async with world(named, inside) as it:
        for resource_ in (ref("a", "x"), ref("a", "y"), ref("b", "x"), ref("far", "")):
            it.triggers.on_change(resource_, resource())
        await it.streams[NAMESPACE].synced([], 1)
        await it.streams[POD].synced([], 1)
        await it.send("ADDED", "team", 2, NAMESPACE, annotations={"report": "a"})
        assert it.names() == ["a", "a"]
        await it.send("MODIFIED", "team", 3, NAMESPACE, annotations={"report": "b"})
        assert it.names() == ["a", "a", "b"]
        await it.send("MODIFIED", "team", 4, NAMESPACE, annotations={})
        assert it.take() == [("b", "trigger: Namespace team no longer matches")]
        await it.send("ADDED", "p", 5)
        assert it.names() == ["far"]


async def test_labels_and_when_begin_and_end_to_match() -> None:
    """A status counts where `when` reads it, and only if the result differs."""
    trigger = ObjectTrigger(POD, LabelSelector({"app": "a"}), when="status.phase == 'Running'")
    async with world(trigger) as it:
        it.triggers.on_change(ref("a"), resource())
        labels = {"app": "a"}
        await it.send("ADDED", "p", 1, labels=labels, status={"phase": "Pending"})
        await it.streams[POD].synced(["p"], 1)
        await it.send("MODIFIED", "p", 2, generation=1, labels=labels, status={"phase": "Running"})
        assert it.take() == [("a", "trigger: Pod ns/p now matches")]
        status = {"phase": "Running", "message": "m"}
        await it.send("MODIFIED", "p", 3, generation=1, labels=labels, status=status)
        assert it.take() == []
        await it.send("MODIFIED", "p", 4, generation=1, labels={}, status=status)
        assert it.take() == [("a", "trigger: Pod ns/p no longer matches")]
        await it.send("MODIFIED", "p", 5, generation=1, labels=labels, status=status)
        await it.send("MODIFIED", "p", 6, generation=1, labels=labels, status={"phase": "Failed"})
        assert len(it.take()) == 2
        await it.send("DELETED", "p", 7, labels=labels)
        assert it.take() == []


async def test_a_deletion_while_nothing_was_watched() -> None:
    """A complete list shows it; what still exists leads to no run."""
    async with world(ObjectTrigger(POD)) as it:
        it.triggers.on_change(ref("a"), resource())
        for name in ("kept", "gone"):
            await it.send("ADDED", name, 1)
        await it.streams[POD].synced(["kept", "gone"], 1)
        await it.send("ADDED", "kept", 1)
        await it.streams[POD].synced(["kept"], 2)
        assert it.take() == [("a", "trigger: Pod ns/gone deleted")]


async def test_an_object_concerns_resources_whose_selector_it_matches() -> None:
    """Those of the object's namespace whose selector it matches, or matched before."""
    here = ObjectTrigger(POD, matching="spec.selector")
    async with world(here) as it:
        for name in "ab":
            selector = {"matchLabels": {"app": name}}
            it.triggers.on_change(ref(name), resource(selector=selector))
            it.triggers.on_change(ref(f"{name}2", "elsewhere"), resource(selector=selector))
        it.triggers.on_change(ref("all", ""), resource(selector={}))
        it.triggers.on_change(ref("none"), resource())
        await it.streams[POD].synced([], 1)
        await it.send("ADDED", "p", 2, labels={"app": "a"})
        assert it.names() == ["a", "all"]
        await it.send("MODIFIED", "p", 3, labels={"app": "b"})
        assert it.names() == ["a", "all", "b"]
        it.triggers.on_change(ref("b"), resource(selector={"matchLabels": {"app": "c"}}))
        it.triggers.on_change(ref("all", ""), None)
        await it.send("DELETED", "p", 4, labels={"app": "b"})
        assert it.names() == []


async def test_an_object_concerns_such_resources_of_all_namespaces() -> None:
    """With namespace '*', and each once."""
    async with world(ObjectTrigger(POD, namespace="'*'", matching="spec.selector")) as it:
        selector = {"matchLabels": {"app": "a"}}
        for resource_ in (ref("a", "x"), ref("b", "y"), ref("far", "")):
            it.triggers.on_change(resource_, resource(selector=selector))
        await it.streams[POD].synced([], 1)
        await it.send("ADDED", "p", 2, labels={"app": "a"})
        assert it.names() == ["a", "b", "far"]


async def test_a_failure_is_reported_once_for_each_state() -> None:
    """With the resources that the object was about; it is about none until it is repaired."""
    trigger = ObjectTrigger(POD, name="metadata.annotations.report")
    async with world(trigger) as it:
        it.triggers.on_change(ref("a"), resource())
        await it.streams[POD].synced([], 1)
        await it.send("ADDED", "p", 1, generation=1, annotations={"report": "a"})
        it.take()
        await it.send("MODIFIED", "p", 2, generation=1, annotations={"report": 3})
        assert it.take() == [("a", "trigger: Pod ns/p no longer matches")]
        await it.send("MODIFIED", "p", 3, generation=1, annotations={"report": 3})
        (failure,) = it.failed
        assert failure.error.key == "triggers[0].name"
        assert failure.error.reason == "expected text or a list of text, got a number"
        assert failure.resources == {ref("a")}
        assert (failure.ref, failure.uid) == (ObjectRef(POD, "ns", "p"), "p")
        await it.send("MODIFIED", "p", 4, generation=2, annotations={"report": 3})
        assert [bool(each.resources) for each in it.failed] == [True, False]
        await it.send("MODIFIED", "p", 5, generation=3, annotations={"report": "a"})
        assert it.take() == [("a", "trigger: Pod ns/p now matches")]
        assert it.recovered == [failure.place]


async def test_an_object_that_is_deleted_does_not_fail_any_more() -> None:
    """Nor does one whose other expression fails, or that is missing in a later list."""
    trigger = ObjectTrigger(POD, when="length(spec.list)", name="metadata.annotations.report")
    async with world(trigger) as it:
        await it.streams[POD].synced([], 1)
        for name in "pq":
            await it.send("ADDED", name, 2)
        await it.send("DELETED", "p", 3)
        keys = [(place.key, place.ref.name) for place in it.recovered]
        assert keys == [("triggers[0].when", "p")]
        await it.send("MODIFIED", "q", 4, spec={"list": [1]}, annotations={"report": 3})
        await it.streams[POD].synced([], 5)
        keys = [(place.key, place.ref.name) for place in it.recovered[1:]]
        assert keys == [("triggers[0].when", "q"), ("triggers[0].name", "q")]
        assert len(it.failed) == 3


async def test_a_selector_that_fails_is_reported_once() -> None:
    """It is reported about the resource, once for each error."""
    async with world(ObjectTrigger(POD, matching="spec.selector")) as it:
        for _ in range(2):
            it.triggers.on_change(ref("a"), resource("u1", selector="app=a"))
        (failure,) = it.failed
        assert (failure.error.key, failure.ref, failure.uid) == (
            "triggers[0].matching",
            ref("a"),
            "u1",
        )
        await it.streams[POD].synced([], 1)
        await it.send("ADDED", "p", 2, labels={"app": "a"})
        assert it.names() == []
        it.triggers.on_change(ref("a"), resource("u1", selector={}))
        it.triggers.on_change(ref("a"), resource("u1", selector="app=a"))
        assert len(it.failed) == 2
        it.triggers.on_change(ref("a"), None)
        assert it.recovered == [failure.place] * 2


async def test_an_object_does_not_trigger_itself() -> None:
    """Siblings run; the change of the resource itself is the business of its own watch."""
    async with world(ObjectTrigger(FOO)) as it:
        for name in "ab":
            it.triggers.on_change(ref(name), resource())
        await it.streams[FOO].synced([], 1)
        await it.send("ADDED", "a", 2, FOO)
        assert it.take() == [("b", "trigger: Foo ns/a created")]


async def test_chosen_fields_lead_to_runs_too() -> None:
    """A write of the status leads to a run only if a field of wakeOn has changed."""
    async with world(ObjectTrigger(POD), wake_on=(WakeOn(POD, ("status.phase",)),)) as it:
        it.triggers.on_change(ref("a"), resource())
        await it.send("ADDED", "old", 1, generation=1, status={"phase": "Pending"})
        await it.streams[POD].synced(["old"], 1)
        await it.send("MODIFIED", "old", 2, generation=1, status={"phase": "Pending", "ip": "1"})
        assert it.take() == []
        await it.send("MODIFIED", "old", 3, generation=1, status={"phase": "Running"})
        assert it.take() == [("a", "trigger: Pod ns/old status.phase Pending to Running")]
        it.triggers.on_change(ref("a"), None)
