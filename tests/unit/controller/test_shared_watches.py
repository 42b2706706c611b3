"""One watch for all consumers of a kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from operator_runner.controller.sources import shared_watches
from operator_runner.controller.sources.shared_watches import (
    SharedEvent,
    SharedWatches,
    Subscription,
    WatchRequest,
)
from operator_runner.core.errors import Forbidden
from operator_runner.core.model import GVK, Json
from operator_runner.kube import watch as watching
from operator_runner.kube.watch import EventType, MetadataEvent
from tests.support.background import in_background

POD = GVK("", "v1", "Pod")


class Server:
    """Streams that the test feeds, by namespace; an exception ends one."""

    def __init__(self) -> None:
        self.requests: list[WatchRequest] = []
        self.events: dict[str | None, asyncio.Queue[MetadataEvent | Exception]] = {}

    async def stream(
        self, request: WatchRequest, namespace: str | None
    ) -> AsyncIterator[MetadataEvent]:
        self.requests.append(request)
        queue = self.events.setdefault(namespace, asyncio.Queue())
        while True:
            match await queue.get():
                case Exception() as error:
                    raise error
                case event:
                    if request.extraction is not None and event.type is EventType.ADDED:
                        extracted = request.extraction.function(event.body)
                        event = MetadataEvent(event.type, event.body, None, extracted)
                    yield event

    def send(self, *events: MetadataEvent | Exception, namespace: str | None = None) -> None:
        for each in events:
            self.events.setdefault(namespace, asyncio.Queue()).put_nowait(each)


def added(name: str) -> MetadataEvent:
    metadata = {"name": name, "namespace": "ns"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return MetadataEvent(EventType.ADDED, body)


SYNCED = MetadataEvent(EventType.SYNCED, {"uids": frozenset(), "resourceVersion": "1"})


class Consumer(list[SharedEvent]):
    """The events that a subscription has got."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: asyncio.Queue[None] = asyncio.Queue()

    def take(self, event: SharedEvent) -> None:
        self.append(event)
        self._taken.put_nowait(None)

    def subscription(self, **more: Any) -> Subscription:
        return Subscription(POD, self.take, "objects", **more)

    async def reach(self, count: int) -> None:
        """Wait until there are this many."""
        async with asyncio.timeout(60):
            while len(self) < count:
                await self._taken.get()


@pytest.mark.parametrize(
    ("selectors", "sent"),
    [(["a=b", "a=b"], "a=b"), (["a=b", ""], ""), (["a=b", "a=c"], "")],
)
async def test_a_kind_is_watched_once(selectors: list[str], sent: str) -> None:
    """With the selector that all have, and whole objects if one needs them."""
    server, consumers = Server(), [Consumer() for _ in selectors]

    def name(body: Json) -> str:
        return str(body["metadata"]["name"])

    def fail(body: Json) -> str:
        raise KeyError(body["kind"])

    extracts = (name, fail)
    subscriptions = [
        each.subscription(label_selector=selector, extract=extract, whole=extract is fail)
        for each, selector, extract in zip(consumers, selectors, extracts, strict=True)
    ]
    watches = SharedWatches(subscriptions, server.stream, ())
    server.send(added("p"), SYNCED)
    with capture_logs() as lines:
        async with asyncio.timeout(60), in_background(watches.run()):
            await watches.wait_listed()
            for each in consumers:
                await each.reach(2)
    (request,) = server.requests
    assert request.label_selector == sent
    assert request.extraction is not None
    assert request.extraction.whole
    assert [[event.type.value for event in each] for each in consumers] == [["ADDED", "SYNCED"]] * 2
    assert [each[0].extracted for each in consumers] == ["p", None]
    assert [line["log_level"] for line in lines] == ["error"]


async def test_objects_of_a_late_list_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions were missing at first, and resources ran without the objects."""
    monkeypatch.setattr(watching, "_RECHECK_SECONDS", 0)
    server, consumer = Server(), Consumer()
    watches = SharedWatches([consumer.subscription()], server.stream, ["x", "y"])
    server.send(added("a"), SYNCED, added("b"), namespace="x")
    server.send(Forbidden("no", 403), added("c"), SYNCED, namespace="y")
    async with asyncio.timeout(60), in_background(watches.run()):
        await watches.wait_listed()
        await consumer.reach(5)
    events = [each for each in consumer if each.type is EventType.ADDED]
    assert {each.body["metadata"]["name"]: each.existed for each in events} == {
        "a": True,
        "b": False,
        "c": False,
    }


async def test_a_list_that_takes_long_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names the kind; objects of the later list lead to runs."""
    monkeypatch.setattr(shared_watches, "_FIRST_LIST_SECONDS", 0.01)
    server, consumer = Server(), Consumer()
    watches = SharedWatches([consumer.subscription()], server.stream, ())
    async with in_background(watches.run()):
        with capture_logs() as lines:
            await watches.wait_listed()
        assert lines[0]["kinds"] == ["/v1, Kind=Pod"]
        server.send(added("a"), SYNCED)
        await consumer.reach(2)
    assert not consumer[0].existed


async def test_nothing_is_waited_for_without_subscriptions() -> None:
    """Operators without references and triggers start at once."""
    async with asyncio.timeout(60):
        await SharedWatches([], Server().stream, ()).wait_listed()
