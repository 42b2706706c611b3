"""References by label selector, with the real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from operator_runner.controller.predicates.wake_on_fields import FailedExpression
from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.references import References
from operator_runner.controller.sources.shared_watches import SharedWatches, WatchRequest
from operator_runner.core.model import GVK, ObjectRef, Reference, RunContent, Watch
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import connect
from operator_runner.kube.watch import EventType, MetadataEvent, watch_metadata
from tests.fakes.states import KnownStates
from tests.support.kubectl import Json, Kubectl

FOO, CONFIG_MAP = GVK("example.com", "v1", "Foo"), GVK("", "v1", "ConfigMap")
WATCH = Watch(
    FOO,
    RunContent(role=Path("/roles/foo")),
    references=(Reference(CONFIG_MAP, selector="spec.selector"),),
)
OBJECTS, RESOURCES, EDITS = 250, 1000, 20
_DEADLINE_SECONDS = 90


def _config_map(number: int) -> Json:
    metadata = {"name": f"m{number}", "labels": {"app": f"a{number}"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def test_selections_cost_one_list_and_one_watch(
    control_plane: Path, api: Api, discovery: Discovery, kubectl: Kubectl
) -> None:
    """A thousand resources select among 250 objects: no request for a resource or an edit."""
    kubectl.apply(*(_config_map(number) for number in range(OBJECTS)))
    resource = await discovery.resource(CONFIG_MAP)
    connection = await connect(control_plane, user_agent="tests")
    requests: list[tuple[str, str]] = []
    connection.on_response(lambda _, *request: requests.append((request[0], request[1])))
    synced, woken, enough = asyncio.Event(), set[str](), asyncio.Event()

    async def stream(_: WatchRequest, namespace: str | None) -> AsyncIterator[MetadataEvent]:
        async for event in watch_metadata(Api(connection), resource, namespace):
            yield event
            if event.type is EventType.SYNCED:
                synced.set()

    def enqueue(ref: ObjectRef, *_: Any) -> None:
        woken.add(ref.name)
        if len(woken) == EDITS:
            enough.set()

    failed: list[FailedExpression] = []
    references = References([WATCH], enqueue, failed.append, Debouncer(KnownStates(), enqueue))
    for number in range(RESOURCES):
        ref = ObjectRef(FOO, kubectl.namespace, f"r{number}")
        metadata = {"name": ref.name, "namespace": ref.namespace}
        spec = {"selector": {"matchLabels": {"app": f"a{number}"}}}
        references.on_change(ref, {"metadata": metadata, "spec": spec})
    watches = SharedWatches(references.subscriptions(), stream, [kubectl.namespace])
    running = asyncio.create_task(watches.run())
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await synced.wait()
            for number in range(EDITS):
                path = resource.path(kubectl.namespace, f"m{number}")
                edit = {"data": {"edited": "yes"}}
                await api.request("PATCH", path, body=edit, content_type=MERGE_PATCH)
            await enough.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await connection.close()
    assert woken == {f"r{number}" for number in range(EDITS)}
    # Three pages of a hundred, which also have the namespace's own ConfigMap, and the watch.
    assert len(requests) == 3 + 1, requests
