"""Writes of a run that changed an object, and those that did not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.controller.predicates.primary_events import annotations_state_key
from operator_runner.controller.sources.own_writes import OwnWrites
from operator_runner.core.model import (
    GVK,
    Cause,
    FieldChange,
    Json,
    ObjectRef,
    RunContent,
    Trigger,
    Watch,
)
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.watch import EventType, MetadataEvent
from tests.fakes.states import WatchedDependents

WATCH = Watch(GVK("example.com", "v1", "Foo"), RunContent(role=Path("/roles/foo")))
OWNER = ObjectRef(WATCH.gvk, "default", "owner")
CHILD = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "child")
CHANGED = Cause(Trigger.DEPENDENT, "changed", CHILD)


def metadata(version: str, **more: Any) -> Json:
    return {"name": "child", "uid": "u", "resourceVersion": version} | more


async def silence(gvk: GVK, namespace: str | None) -> AsyncIterator[MetadataEvent]:
    """Stand for a watch on which nothing happens."""
    await asyncio.Event().wait()
    yield MetadataEvent(EventType.SYNCED, {"gvk": gvk, "namespace": namespace})


@pytest.fixture
async def subject() -> AsyncIterator[WatchedDependents]:
    """Return the sources of an operator without reports of the proxy."""
    dependents = WatchedDependents(silence, lambda *_: None)
    yield dependents
    await dependents.stop()


async def test_a_write_without_changes_does_not_count(subject: WatchedDependents) -> None:
    """A request that is answered with the known resourceVersion changed nothing."""
    with subject.hold_events(OWNER):
        subject.on_dependent(OWNER, CHILD, metadata("5"), WATCH)
        subject.on_dependent(OWNER, CHILD, metadata("5"), WATCH)
        subject.on_write(OWNER, CHILD, "5", "patch")
    assert not subject.writes.is_echo(OWNER, CHANGED)
    with subject.hold_events(OWNER):
        subject.on_dependent(OWNER, CHILD, metadata("5"), WATCH)
        subject.on_dependent(OWNER, CHILD, metadata("6"), WATCH)
        subject.on_write(OWNER, CHILD, "6", "patch")
    assert subject.writes.is_echo(OWNER, CHANGED)
    with subject.hold_events(OWNER):
        pass
    assert not subject.writes.is_echo(OWNER, CHANGED)


async def test_a_creation_is_a_write(subject: WatchedDependents) -> None:
    """The first answer that shows an object is that of its creation."""
    with subject.hold_events(OWNER):
        subject.on_dependent(OWNER, CHILD, metadata("5"), WATCH)
        subject.on_write(OWNER, CHILD, "5", "create")
    assert subject.writes.is_echo(OWNER, CHANGED)


async def test_writes_of_foreign_objects_are_detected_by_version(
    subject: WatchedDependents,
) -> None:
    """A write to a foreign object counts if its version differs from that of the previous write."""
    named = Cause(Trigger.REFERENCE, "changed", CHILD)
    echoes = []
    for version in ("5", "5", "6"):
        with subject.hold_events(OWNER):
            subject.on_write(OWNER, CHILD, version, "patch")
        echoes.append(subject.writes.is_echo(OWNER, named))
    assert echoes == [True, False, True]


async def test_edits_of_the_resource_by_its_own_run_are_recognised(
    subject: WatchedDependents,
) -> None:
    """By the generation and the annotations that they led to; those of others are not."""
    own = metadata("9", generation=3, annotations={"a": "1"})
    subject.on_own_write(OWNER, own)
    spec, annotation = Trigger.SPEC, Trigger.ANNOTATION
    assert subject.writes.is_echo(OWNER, Cause(spec, state_key="3"))
    assert not subject.writes.is_echo(OWNER, Cause(spec, state_key="4"))
    assert subject.writes.is_echo(OWNER, Cause(annotation, state_key=annotations_state_key(own)))
    assert not subject.writes.is_echo(OWNER, Cause(annotation, state_key=annotations_state_key({})))
    subject.states.pop(OWNER)
    assert not subject.writes.is_echo(OWNER, Cause(spec, state_key="3"))


async def test_changed_fields_are_kept_until_they_are_taken(subject: WatchedDependents) -> None:
    """Those of one run, the first ones of many, and none of a run before."""
    changes = [FieldChange(CHILD, f"data.{number}", b"1", b"2", 0) for number in range(40)]
    with subject.hold_events(OWNER):
        subject.changed(OWNER, changes[:1])
    with subject.hold_events(OWNER):
        for change in changes:
            subject.changed(OWNER, [change])
    assert list(subject.writes.take_changes(OWNER)) == changes[:32]
    assert not subject.writes.take_changes(OWNER)


def test_the_last_write_is_kept_after_runs_without_writes() -> None:
    """Until the next write; an edit of the resource is a write too."""
    writes, other = OwnWrites(ResourceStates()), replace(CHILD, name="other")
    writes.begin(OWNER)
    assert not writes.has_written(OWNER)
    writes.record(OWNER, CHILD)
    assert writes.has_written(OWNER)
    for _ in range(2):
        writes.begin(OWNER)
        assert not writes.has_written(OWNER)
        assert not writes.is_echo(OWNER, CHANGED)
        assert writes.is_recent_echo(OWNER, CHANGED)
    writes.record(OWNER, other)
    assert not writes.is_recent_echo(OWNER, CHANGED)
    writes.begin(OWNER)
    writes.record_edit(OWNER, metadata("7"))
    assert writes.has_written(OWNER)


def test_the_last_write_to_the_own_resource_has_its_version() -> None:
    """Including the status; the version is kept after the run."""
    states = ResourceStates()
    writes = OwnWrites(states)
    assert writes.own_version(OWNER) == ""
    writes.begin(OWNER)
    writes.record_foreign(OWNER, CHILD, "6")
    assert writes.own_version(OWNER) == ""
    writes.record_foreign(OWNER, OWNER, "7")
    writes.begin(OWNER)
    assert writes.own_version(OWNER) == "7"
    states.pop(OWNER)
    assert writes.own_version(OWNER) == ""
