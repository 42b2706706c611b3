"""Triggers with the real API server: requests, selectors and outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.shared_watches import SharedWatches, WatchRequest
from operator_runner.controller.sources.triggers import Sinks, Triggers
from operator_runner.core.model import (
    GVK,
    Cause,
    LabelSelector,
    ObjectRef,
    ObjectTrigger,
    RunContent,
    Watch,
)
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import connect
from operator_runner.kube.watch import MetadataEvent, watch_metadata
from tests.fakes.states import KnownStates
from tests.support.background import in_background
from tests.support.kubectl import Json, Kubectl

FOO, CONFIG_MAP = GVK("example.com", "v1", "Foo"), GVK("", "v1", "ConfigMap")
SELECTOR = LabelSelector({"about": "foo"})
OBJECTS, RESOURCES, EDITS = 2000, 1000, 100
_AT_ONCE = 20
_DEADLINE_SECONDS = 300


def _config_map(number: int, **labels: str) -> Json:
    metadata = {"name": f"m{number}", "labels": labels}
    data = {"for": f"r{number % RESOURCES}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Woken(list[tuple[str, str]]):
    """Names and causes, and a way to wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self._added: asyncio.Queue[None] = asyncio.Queue()

    def __call__(self, ref: ObjectRef, cause: Cause) -> None:
        self.append((ref.name, cause.detail))
        self._added.put_nowait(None)

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while len(self) < count:
                await self._added.get()


async def test_thousands_of_objects_cost_a_list_and_a_watch(
    control_plane: Path, api: Api, discovery: Discovery, kubectl: Kubectl
) -> None:
    """Two triggers share them; no request for an object, a resource or an event.

    One selector is sent: objects without the labels are not even listed.
    """
    resource = await discovery.resource(CONFIG_MAP)
    path, limit = resource.path(kubectl.namespace), asyncio.Semaphore(_AT_ONCE)

    async def create(number: int, **labels: str) -> None:
        async with limit:
            await api.request("POST", path, body=_config_map(number, **labels))

    await asyncio.gather(*(create(number, about="foo") for number in range(OBJECTS)))
    await asyncio.gather(*(create(OBJECTS + number) for number in range(100)))
    connection = await connect(control_plane, user_agent="tests")
    requests: list[tuple[object, ...]] = []
    connection.on_response(lambda *request: requests.append(request))

    async def stream(request: WatchRequest, namespace: str | None) -> AsyncIterator[MetadataEvent]:
        async for event in watch_metadata(
            Api(connection),
            resource,
            namespace,
            request.label_selector,
            extraction=request.extraction,
        ):
            yield event

    woken = Woken()
    by_name = ObjectTrigger(CONFIG_MAP, SELECTOR, name='metadata.annotations."for"')
    by_labels = ObjectTrigger(CONFIG_MAP, SELECTOR, matching="spec.selector")
    watch = Watch(FOO, RunContent(role=Path("/roles/foo")), triggers=(by_name, by_labels))
    triggers = Triggers(
        [watch], lambda _: True, Sinks(woken, lambda _: None), Debouncer(KnownStates(), woken)
    )
    for number in range(RESOURCES):
        ref = ObjectRef(FOO, kubectl.namespace, f"r{number}")
        selector = {"matchLabels": {"edited": f"e{number}"}}
        body = {"metadata": {"name": ref.name, "namespace": ref.namespace}}
        triggers.on_change(ref, body | {"spec": {"selector": selector}})
    watches = SharedWatches(triggers.subscriptions(), stream, [kubectl.namespace])
    async with in_background(watches.run()), asyncio.timeout(_DEADLINE_SECONDS):
        await watches.wait_listed()
        assert not woken
        for number in range(EDITS):
            metadata = {
                "labels": {"edited": f"e{number}"},
                "annotations": {"for": f"r{number + EDITS}"},
            }
            edit = {"metadata": metadata}
            await api.request("PATCH", f"{path}/m{number}", body=edit, content_type=MERGE_PATCH)
        await woken.reach(2 * EDITS)
        await api.request("DELETE", f"{path}/m0")
        await woken.reach(2 * EDITS + 2)
    await connection.close()
    names = {name for name, _ in woken}
    assert names == {f"r{number}" for number in range(2 * EDITS)}
    deleted = f"ConfigMap {kubectl.namespace}/m0 deleted or no longer selected"
    assert woken[-2:] == [(name, deleted) for name in (f"r{EDITS}", "r0")]
    # Pages of a hundred, and the watch.
    assert len(requests) == OBJECTS // 100 + 1, len(requests)
