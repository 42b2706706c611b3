"""Follow all objects of one kind: list, watch, and go on after any failure.

Metadata alone is asked for, or whole objects of which metadata and health are kept.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from operator_runner.core import bounds
from operator_runner.core.errors import ApiError, Forbidden, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.kube.api import Api, error_of, metadata_watch
from operator_runner.kube.discovery import Resource
from operator_runner.kube.line_splitting import split_lines
from operator_runner.kube.readiness import Health, health_of

_META = "g=meta.k8s.io;v=v1,application/json"
_LIST = f"application/json;as=PartialObjectMetadataList;{_META}"
_WATCH = f"application/json;as=PartialObjectMetadata;{_META}"
"""An aggregated API that cannot reduce objects to their metadata sends them whole."""
_WHOLE = "application/json"
_CHUNK = "100"
_CHUNK_OF_WHOLE = "20"
"""Objects that are listed with one request. An object may have 1.5 MB and its metadata a third of
it; what comes with one answer is decoded in one piece."""
_SERVER_TIMEOUT = (300, 600)
"""Seconds after which the API server ends a watch, spread so that not all come at once."""
_SILENCE = 60.0
"""Seconds beyond the server's own timeout until a watch counts as dead."""
_BACKOFF = (0.8, 30.0)
"""First and longest delay of a reconnect in seconds, as client-go's reflector has them."""
_STEADY = 5.0
"""A watch that lasted this many seconds was a good one: the next failure is a first again."""
_GONE = 410
_UNUSED = "kubectl.kubernetes.io/last-applied-configuration"

_log = structlog.get_logger(__name__)


class EventType(StrEnum):
    """What a MetadataEvent tells; SYNCED follows each complete list."""

    SYNCED = "SYNCED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class MetadataEvent:
    """`body` has apiVersion, kind and metadata, and nothing else.

    That of SYNCED has `uids`, all that are in the list, and the list's `resourceVersion`.
    The body of a deletion that was noticed only afterwards has name, namespace, uid,
    resourceVersion and ownerReferences alone. `health` is None where it was not asked for.
    """

    type: EventType
    body: Json
    health: Health | None = None


async def watch_metadata(
    api: Api,
    resource: Resource,
    namespace: str | None,
    label_selector: str = "",
    *,
    health: bool = False,
) -> AsyncIterator[MetadataEvent]:
    """Yield ADDED for what exists, SYNCED, then each change, for ever.

    `namespace` None means all. `health` asks for whole objects, to tell what their status says;
    nothing else of them is kept. Failures are answered by going on where the watch was, with
    growing delay; where the API server no longer knows that place (410), objects are listed
    again and the difference is yielded.

    Raises Forbidden or NotFound if the first list is refused: rights or CRD are missing, and
    the caller decides when to try again. Once SYNCED, these too are retried, for API servers
    answer so for a moment while they start.
    """
    follower = _Follower(api, resource, namespace, label_selector, health)
    delay = Delay()
    complained = False
    while True:
        started = time.monotonic()
        try:
            async for event in follower.once():
                complained = False
                yield event
        except ApiError as error:
            refused = isinstance(error, Forbidden | NotFound)
            if refused and not (follower.synced and isinstance(error, Forbidden)):
                # A kind that is gone has no objects; rights that were there may come back.
                api.connection.watch_refused(metadata_watch(resource.path(namespace)))
            if refused and not follower.synced:
                raise
            log = _log.warning if refused and not complained else _log.debug
            log("watch broke off; trying again", gvk=str(resource.gvk), reason=str(error))
            complained = complained or refused
            await delay.wait(time.monotonic() - started)
        else:
            # Ended by the server after its time; but never spin if it ends at once.
            if time.monotonic() - started < 1:
                await delay.wait(0)


class Delay:
    """Exponential backoff with jitter."""

    def __init__(self) -> None:
        self._next = _BACKOFF[0]

    async def wait(self, lasted: float) -> None:
        """Sleep before the next try; `lasted` is how many seconds the last one went well."""
        if lasted > _STEADY:
            self._next = _BACKOFF[0]
        # Replicas must not come back in step.
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))  # noqa: S311
        self._next = min(self._next * 2, _BACKOFF[1])


@dataclass(slots=True)
class _Follower:
    """What is known of the objects, and from where to go on."""

    api: Api
    resource: Resource
    namespace: str | None
    label_selector: str
    health: bool
    known: dict[str, Json] = field(default_factory=dict)
    """The last state by uid, reduced to what a late DELETED needs."""
    version: str = ""
    """Where to go on; empty: list first."""
    synced: bool = False

    async def once(self) -> AsyncIterator[MetadataEvent]:
        """List if need be, then watch until the server ends it. Raises ApiError."""
        if not self.version:
            items, version = await self._list()
            for event in self._compare(items):
                yield event
            self.version, self.synced = version, True
            listed = {"uids": frozenset(self.known), "resourceVersion": version}
            yield MetadataEvent(EventType.SYNCED, listed)
        async for change in self._watch():
            taken = self._take(change)
            if taken is not None:
                yield taken

    async def _list(self) -> tuple[list[MetadataEvent], str]:
        items: list[MetadataEvent] = []
        params = self._params() | {"limit": _CHUNK_OF_WHOLE if self.health else _CHUNK}
        accept = _WHOLE if self.health else _LIST
        while True:
            answer = await self.api.request(
                "GET", self.resource.path(self.namespace), params=params, accept=accept, around=2
            )
            items += [self._event(EventType.ADDED, item) for item in answer.get("items") or []]
            metadata = answer["metadata"]
            if not metadata.get("continue"):
                return items, metadata["resourceVersion"]
            params["continue"] = metadata["continue"]

    async def _watch(self) -> AsyncIterator[Json]:
        seconds = random.randint(*_SERVER_TIMEOUT)  # noqa: S311
        params = self._params() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(seconds),
        }
        path = self.resource.path(self.namespace)
        try:
            async with self.api.stream(
                path,
                params=params,
                accept=_WHOLE if self.health else _WATCH,
                idle=seconds + _SILENCE,
            ) as chunks:
                async for line in split_lines(chunks):
                    yield _parse(line, path)
        except ApiError as error:
            if error.status == _GONE:
                self.version = ""
            raise

    def _params(self) -> dict[str, str]:
        return {"labelSelector": self.label_selector} if self.label_selector else {}

    def _take(self, change: Json) -> MetadataEvent | None:
        """Apply one line of the watch; bookmarks only move on."""
        metadata = change["object"]["metadata"]
        self.version = metadata["resourceVersion"]
        if change["type"] == "BOOKMARK":
            return None
        event = self._event(EventType(change["type"]), change["object"])
        if event.type is EventType.DELETED:
            self.known.pop(metadata["uid"], None)
        else:
            self.known[metadata["uid"]] = _remembered(event.body)
        return event

    def _compare(self, items: list[MetadataEvent]) -> Iterator[MetadataEvent]:
        """Yield how a fresh list differs from what is known; deletions first."""
        before, self.known = self.known, {}
        for item in items:
            self.known[item.body["metadata"]["uid"]] = _remembered(item.body)
        for uid, body in before.items():
            if uid not in self.known:
                yield MetadataEvent(EventType.DELETED, body)
        for item in items:
            metadata = item.body["metadata"]
            old = before.get(metadata["uid"])
            if old is None:
                yield item
            elif old["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                yield replace(item, type=EventType.MODIFIED)

    def _event(self, type_: EventType, item: Json) -> MetadataEvent:
        health = health_of(self.resource.gvk, item) if self.health else None
        return MetadataEvent(type_, self._reduce(item), health)

    def _reduce(self, item: Json) -> Json:
        metadata = dict(item["metadata"])
        if _UNUSED in metadata.get("annotations", ()):
            annotations = metadata["annotations"]
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != _UNUSED}
        gvk = self.resource.gvk
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}


def _remembered(body: Json) -> Json:
    keys = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
    metadata: Mapping[str, object] = body["metadata"]
    return {**body, "metadata": {key: metadata[key] for key in keys if key in metadata}}


def _parse(line: bytes, path: str) -> Json:
    try:
        change: Json = bounds.decode(line, 1)
    except ValueError as error:
        raise Unavailable(f"watch {path}: a line of the answer is no JSON") from error
    if change["type"] == "ERROR":
        status = change["object"]
        raise error_of(int(status.get("code") or 500), status, f"watch {path}")
    return change
