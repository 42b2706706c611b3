"""Changes of chosen fields that reconcile the owner, and changes that a run has already read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from operator_runner.controller.predicates.wake_on_fields import (
    ExpressionPlace,
    FailedExpression,
    WakeOnFields,
    difference_of,
)
from operator_runner.controller.sources import debouncing
from operator_runner.core.model import GVK, Json, WakeOn
from operator_runner.kube.object_readiness import Health
from operator_runner.kube.watch import EventType, MetadataEvent
from tests.fakes.states import WatchedDependents
from tests.unit.controller.test_dependents import (
    CHILD,
    DEPLOYMENT,
    NOT_READY,
    OWNER,
    READY,
    WATCH,
    Stream,
    Woken,
    metadata,
)

READY_REPLICAS, PHASE = "status.readyReplicas", "status.phase"
CHOOSING = replace(WATCH, wake_on=(WakeOn(DEPLOYMENT, (READY_REPLICAS, PHASE)),))
CAUSE = "dependent: Deployment default/child"


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process events of a pause some time later."""
    monkeypatch.setattr(debouncing, "_PAUSE_SECONDS", 0.01)


class World:
    """Dependents of an owner, whose object the test changes."""

    def __init__(self, subject: WatchedDependents, stream: Stream, woken: Woken) -> None:
        self.subject, self.stream, self.woken = subject, stream, woken
        self._extraction = subject.extraction(DEPLOYMENT, has_status=True)

    def response(self, version: int, **status: Any) -> None:
        """Report the object in a response to a run."""
        body = deployment(version, status)
        self.subject.on_dependent(OWNER, CHILD, body["metadata"], CHOOSING, NOT_READY, body=body)

    async def event(self, version: int, health: Health = NOT_READY, **status: Any) -> None:
        """Send an event of the API server."""
        assert self._extraction is not None
        body = deployment(version, status)
        event = MetadataEvent(
            EventType.MODIFIED,
            {"metadata": body["metadata"]},
            health,
            self._extraction.function(body),
        )
        self.stream.events.put_nowait(event)
        await self.stream.events.join()


def deployment(version: int, status: Json) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(version),
        "status": status,
    }


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    stream, woken = Stream(), Woken()
    failed: list[FailedExpression] = []
    fields = WakeOnFields([CHOOSING], failed.append)
    subject = WatchedDependents(stream, woken, (), [CHOOSING], fields=fields)
    try:
        yield World(subject, stream, woken)
        assert failed == []
    finally:
        await subject.stop()


async def test_only_a_chosen_field_reconciles_the_owner() -> None:
    """Old and new value are in the cause; other fields of the status start no run."""
    async with world() as case:
        case.response(10)
        await case.event(11, replicas=3, observedGeneration=1)
        assert case.woken == []
        await case.event(12, readyReplicas=1)
        assert case.woken == [f"{CAUSE} status.readyReplicas none to 1"]
        await case.event(13, readyReplicas=2, phase="Fine")
        await case.woken.reach(2)
        assert case.woken[1] == f"{CAUSE} status.readyReplicas 1 to 2, status.phase none to Fine"


async def test_readiness_and_fields_of_one_event_are_one_cause() -> None:
    """A Deployment that becomes ready changes its counters too: that is one run."""
    async with world() as case:
        case.response(10)
        await case.event(11, READY, readyReplicas=1)
        assert case.woken == [f"{CAUSE} status.readyReplicas none to 1, became ready"]


async def test_changes_before_the_first_read_start_no_run() -> None:
    """Events up to the version of the run's first response start no run, later ones do."""
    async with world() as case:
        case.response(10, readyReplicas=1)
        with case.subject.hold_events(OWNER):
            case.response(14, readyReplicas=3)
            await case.event(12, readyReplicas=2)
            await case.event(14, readyReplicas=3)
        assert case.woken == []
        await case.event(15, readyReplicas=4)
        assert case.woken == [f"{CAUSE} status.readyReplicas 3 to 4"]


async def test_a_later_read_of_the_same_run_hides_nothing() -> None:
    """The role may have used the first value that it read."""
    async with world() as case:
        case.response(10, readyReplicas=1)
        with case.subject.hold_events(OWNER):
            case.response(10, readyReplicas=1)
            await case.event(12, readyReplicas=2)
            case.response(12, readyReplicas=2)
        assert case.woken == [f"{CAUSE} status.readyReplicas 1 to 2"]


async def test_an_own_write_starts_no_run() -> None:
    """A role that writes a chosen field itself is not run by that."""
    async with world() as case:
        case.response(10, readyReplicas=1)
        with case.subject.hold_events(OWNER):
            case.response(10, readyReplicas=1)
            case.subject.on_write(OWNER, CHILD, "11", "patch")
            await case.event(11, readyReplicas=5)
        assert case.woken == []
        await case.event(12, readyReplicas=4)
        assert case.woken == [f"{CAUSE} status.readyReplicas 5 to 4"]


async def test_changes_during_a_run_lead_to_one_group() -> None:
    """A hundred changes of one run are enqueued together at its end, later ones after the pause."""
    async with world() as case:
        case.response(10)
        with case.subject.hold_events(OWNER):
            case.response(10)
            for number in range(1, 101):
                await case.event(10 + number, readyReplicas=number)
        assert len(case.woken) == 100
        await case.event(200, readyReplicas=0)
        await case.woken.reach(101)


async def test_a_recreated_object_is_new() -> None:
    """The values of a deleted object are not compared with those of its successor."""
    async with world() as case:
        case.response(10, readyReplicas=3)
        await case.stream.send("DELETED", metadata(11))
        assert case.woken == [f"{CAUSE} deleted"]
        with case.subject.hold_events(OWNER):
            case.response(12)
        await case.event(13, readyReplicas=1)
        assert case.woken[1:] == [f"{CAUSE} status.readyReplicas none to 1"]
        case.subject.states.pop(OWNER)
        await case.event(14, readyReplicas=2)
        assert len(case.woken) == 2


def test_values_are_shown_if_they_are_short_and_not_secret() -> None:
    """Lists, maps and long texts are only called changed, and everything of a Secret."""
    secret, pod = GVK("", "v1", "Secret"), GVK("", "v1", "Pod")
    fields = ("data.key", "length(data)", "data")
    watch = replace(WATCH, wake_on=(WakeOn(secret, fields), WakeOn(pod, fields)))
    failed: list[FailedExpression] = []
    chosen = WakeOnFields([watch], failed.append)
    assert chosen.has_kind(pod)
    assert not chosen.has_kind(DEPLOYMENT)
    old, new = {"data": {"key": "old"}}, {"data": {"key": "new", "more": 1}}
    texts = [
        difference_of(chosen.values(gvk, old), chosen.values(gvk, new), chosen.of(watch.gvk, gvk))
        for gvk in (pod, secret)
    ]
    assert texts == [
        "data.key old to new, length(data) 1 to 2, data changed",
        "data.key changed, length(data) changed, data changed",
    ]
    long = chosen.values(pod, {"data": {"key": "x" * 1000}})
    text = difference_of(chosen.values(pod, old), long, chosen.of(watch.gvk, pod))
    assert text == "data.key changed, data changed"
    assert max(map(len, long.values())) < 100


def test_an_expression_that_fails_is_null_and_reported_once() -> None:
    """With its key in the watch, the expression and the object."""
    fields = ("length(status.list)",)
    failed: list[FailedExpression] = []
    watch = replace(WATCH, wake_on=(WakeOn(DEPLOYMENT, fields),))
    chosen = WakeOnFields([watch], failed.append)
    body = deployment(1, {})
    first = [chosen.values(DEPLOYMENT, body) for _ in range(2)]
    assert first == [{"length(status.list)": "null"}] * 2
    (one,) = failed
    assert (one.gvk, one.ref) == (watch.gvk, CHILD)
    assert (one.error.key, one.error.expression) == ("wakeOn[0].fields[0]", fields[0])


def test_an_expression_of_wake_on_recovers() -> None:
    """When it can be evaluated for the object, or the object is deleted."""
    failed: list[FailedExpression] = []
    recovered: list[ExpressionPlace] = []
    watch = replace(WATCH, wake_on=(WakeOn(DEPLOYMENT, ("length(status.list)",)),))
    chosen = WakeOnFields([watch], failed.append, recovered.append)
    statuses: tuple[Json, ...] = ({}, {"list": []}, {})
    for status in statuses:
        chosen.values(DEPLOYMENT, deployment(1, status))
    (first, second) = failed
    assert recovered == [first.place]
    chosen.deleted(CHILD)
    assert recovered == [first.place, second.place]
    for number in range(1001):
        body = deployment(1, {})
        body["metadata"]["name"] = f"web-{number}"
        chosen.values(DEPLOYMENT, body)
    assert recovered[-1].ref.name == "web-0"
