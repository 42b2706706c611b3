"""List and watch all objects of one kind, and continue after any failure.

Either metadata alone is requested, or whole objects, of which metadata is kept, and health or what
the caller extracts.

`watch_forever` watches a kind also while permissions or its CRD are missing. `MissedDeletions`
finds deletions of primary resources that no watch has reported: a list lacks a known one. A watch
that expired (410, after a long interruption or when a CRD was edited) starts again with a list, and
events in between are lost. kopf delivers the objects of the list, and nothing for those that are
gone; client-go's reflector compares in the same place (`Replace` of its store). For owned objects
see `controller/sources/dependents.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn

import structlog

from operator_runner.core import json_bounds
from operator_runner.core.errors import ApiError, Forbidden, NotFound, Unavailable
from operator_runner.core.model import GVK, LAST_APPLIED, Json, ObjectRef, uid_of
from operator_runner.kube.api import (
    JSON,
    METADATA,
    METADATA_LIST,
    Api,
    continue_token,
    error_from_status,
    list_pages,
    metadata_watch_key,
)
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.object_readiness import Health, health_of
from operator_runner.kube.session import split_lines

_LIST = f"{METADATA_LIST},{JSON}"
_WATCH = f"{METADATA},{JSON}"
"""An aggregated API without support for these sends whole objects."""
_WHOLE = JSON
_METADATA_PAGE = 100
_WHOLE_PAGE = 20
"""Objects in one page. An object may have 1.5 MB and its metadata a third of it; a page is decoded
in one step."""
_SERVER_TIMEOUT_SECONDS = (300, 600)
"""Range of `timeoutSeconds`: random, so that watches do not restart at the same time."""
_IDLE_MARGIN_SECONDS = 60.0
"""Read timeout of a watch beyond `timeoutSeconds`."""
_BACKOFF = (0.8, 30.0)
"""First and longest delay of a reconnect in seconds, as in client-go's reflector."""
_STABLE_SECONDS = 5.0
"""A watch of this duration resets the backoff."""
_GONE = 410

_log = structlog.get_logger(__name__)


class EventType(StrEnum):
    """Type of a MetadataEvent; SYNCED follows each complete list."""

    SYNCED = "SYNCED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class MetadataEvent:
    """A change of an object; `body` has only apiVersion, kind and metadata.

    The body of SYNCED has `uids`, all uids in the list, and the list's `resourceVersion`. The
    body of a deletion that a later list revealed has only name, namespace, uid, resourceVersion
    and ownerReferences. `health` and `extracted` are None unless they were requested, and in
    deletions.
    """

    type: EventType
    body: Json
    health: Health | None = None
    extracted: Any = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """Extract of each object, kept beside its metadata: the result of `function`.

    With `whole` the function gets the whole object, else only apiVersion, kind and metadata. Other
    objects than those of `field_selector` are not watched.
    """

    function: Callable[[Json], Any]
    whole: bool
    field_selector: str = ""


async def watch_metadata(
    api: Api,
    resource: ApiResource,
    namespace: str | None,
    label_selector: str = "",
    *,
    health: bool = False,
    extraction: Extraction | None = None,
    rediscover: Callable[[], Awaitable[ApiResource]] | None = None,
) -> AsyncIterator[MetadataEvent]:
    """Yield ADDED for each existing object, SYNCED, then each change, without end.

    `namespace` None means all. `health` requests whole objects to evaluate their status, as does
    an `extraction` that needs them; the rest of them is dropped at once.

    After a failure the watch continues at its last resourceVersion,
    with exponential backoff; if that has expired (410), objects are listed again and the
    difference is yielded.

    `rediscover` is called if the resource is not served any more: its CRD may have been replaced
    by one with another plural or scope, in which the objects are listed then.

    Raises Forbidden or NotFound if the first list is refused: permissions or CRD are missing,
    and the caller decides when to retry. Once SYNCED, these are retried as well, because API
    servers return them for a moment while they start.
    """
    reflector = Reflector(api, resource, namespace, label_selector, health, extraction)
    delay = Backoff()
    warned = False
    while True:
        started = time.monotonic()
        try:
            async for event in reflector.list_and_watch():
                warned = False
                yield event
        except asyncio.CancelledError:
            api.connection.watch_not_restarted(metadata_watch_key(resource.path(namespace)))
            raise
        except ApiError as error:
            refused = isinstance(error, Forbidden | NotFound)
            if refused and not (reflector.synced and isinstance(error, Forbidden)):
                # A missing kind has no objects; missing permissions may be granted again.
                api.connection.watch_not_restarted(metadata_watch_key(resource.path(namespace)))
            if refused and not reflector.synced:
                raise
            log = _log.warning if refused and not warned else _log.debug
            log("Watch failed; retrying", gvk=str(resource.gvk), error=str(error))
            warned = warned or refused
            if isinstance(error, NotFound) and rediscover is not None:
                await reflector.move(rediscover)
            await delay.wait(time.monotonic() - started)
        else:
            # Ended by the server's timeout; do not spin if it ends at once.
            if time.monotonic() - started < 1:
                await delay.wait(0)


class Backoff:
    """Exponential backoff with jitter."""

    def __init__(self) -> None:
        self._next = _BACKOFF[0]

    async def wait(self, lasted: float) -> None:
        """Sleep before the next attempt; the last one succeeded for `lasted` seconds."""
        if lasted > _STABLE_SECONDS:
            self._next = _BACKOFF[0]
        # Replicas must not reconnect at the same time.
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))  # noqa: S311
        self._next = min(self._next * 2, _BACKOFF[1])


@dataclass(slots=True)
class Reflector:
    """The last known state of the objects, and the resourceVersion to continue at."""

    api: Api
    resource: ApiResource
    namespace: str | None
    label_selector: str
    health: bool
    extraction: Extraction | None = None
    known: dict[str, bytes] = field(default_factory=dict)
    """The last state by uid, reduced to the body of a DELETED from a later list, as JSON: a third
    of the memory of dictionaries."""
    version: str = ""
    """The resourceVersion to watch from; empty: list first."""
    synced: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether whole objects are requested."""
        return self.health or (self.extraction is not None and self.extraction.whole)

    async def move(self, rediscover: Callable[[], Awaitable[ApiResource]]) -> None:
        """List next in the resource that discovery has now, if it is another one."""
        with suppress(ApiError):  # the kind is not served now
            found = await rediscover()
            if found.path(self.namespace) != self.resource.path(self.namespace):
                self.resource, self.version = found, ""

    async def list_and_watch(self) -> AsyncIterator[MetadataEvent]:
        """List if necessary, then watch until the server ends it. Raises ApiError."""
        if not self.version:
            items, version = await self._list()
            for event in self._compare(items):
                yield event
            self.version, self.synced = version, True
            listed = {"uids": frozenset(self.known), "resourceVersion": version}
            yield MetadataEvent(EventType.SYNCED, listed)
        async for change in self._watch():
            taken = self._apply(change)
            if taken is not None:
                yield taken

    async def _list(self) -> tuple[list[MetadataEvent], str]:
        items: list[MetadataEvent] = []
        version = ""
        async for page in list_pages(
            self.api,
            self.resource.path(self.namespace),
            limit=_WHOLE_PAGE if self.is_whole else _METADATA_PAGE,
            params=self._params(),
            accept=_WHOLE if self.is_whole else _LIST,
            outer_levels=2,
        ):
            items += [self._event(EventType.ADDED, item) for item in page.get("items") or []]
            version = page["metadata"]["resourceVersion"]
        return items, version

    async def _watch(self) -> AsyncIterator[Json]:
        seconds = random.randint(*_SERVER_TIMEOUT_SECONDS)  # noqa: S311
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
                accept=_WHOLE if self.is_whole else _WATCH,
                idle=seconds + _IDLE_MARGIN_SECONDS,
            ) as chunks:
                async for line in split_lines(chunks):
                    yield _parse(line, path)
        except ApiError as error:
            if error.status == _GONE:
                self.version = ""
            raise

    def _params(self) -> dict[str, str]:
        fields = self.extraction.field_selector if self.extraction is not None else ""
        selectors = {"labelSelector": self.label_selector, "fieldSelector": fields}
        return {name: text for name, text in selectors.items() if text}

    def _apply(self, change: Json) -> MetadataEvent | None:
        """Apply one line of the watch; None for a bookmark."""
        metadata = change["object"]["metadata"]
        self.version = metadata["resourceVersion"]
        if change["type"] == "BOOKMARK":
            return None
        event = self._event(EventType(change["type"]), change["object"])
        if event.type is EventType.DELETED:
            self.known.pop(metadata["uid"], None)
        else:
            self.known[metadata["uid"]] = _tombstone(event.body)
        return event

    def _compare(self, items: list[MetadataEvent]) -> Iterator[MetadataEvent]:
        """Yield how a new list differs from the known state; deletions first."""
        before, self.known = self.known, {}
        for item in items:
            self.known[item.body["metadata"]["uid"]] = _tombstone(item.body)
        for uid, body in before.items():
            if uid not in self.known:
                yield MetadataEvent(EventType.DELETED, json.loads(body))
        for item in items:
            uid = item.body["metadata"]["uid"]
            old = before.get(uid)
            if old is None:
                yield item
            elif old != self.known[uid]:
                yield replace(item, type=EventType.MODIFIED)

    def _event(self, type_: EventType, item: Json) -> MetadataEvent:
        health = health_of(self.resource.gvk, item) if self.health else None
        body, extracted = self._reduce(item), None
        if self.extraction is not None and type_ is not EventType.DELETED:
            # Items of lists have no apiVersion and kind.
            extracted = self.extraction.function({**body, **item} if self.is_whole else body)
        return MetadataEvent(type_, body, health, extracted)

    def _reduce(self, item: Json) -> Json:
        metadata = dict(item["metadata"])
        if LAST_APPLIED in metadata.get("annotations", ()):
            annotations = metadata["annotations"]
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
        gvk = self.resource.gvk
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata}


def _tombstone(body: Json) -> bytes:
    keys = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
    metadata: Mapping[str, object] = body["metadata"]
    kept = {**body, "metadata": {key: metadata[key] for key in keys if key in metadata}}
    return json.dumps(kept).encode()


def _parse(line: bytes, path: str) -> Json:
    try:
        change: Json = json_bounds.decode(line, 1)
    except ValueError as error:
        raise Unavailable(f"watch {path}: invalid JSON in the response") from error
    if change["type"] == "ERROR":
        status = change["object"]
        raise error_from_status(int(status.get("code") or 500), status, f"watch {path}")
    return change


class MissedDeletions:
    """Compares each complete list of a kind with the resources known before."""

    def __init__(
        self,
        resources: Iterable[ApiResource],
        namespaces: Collection[str],
        known: Callable[[GVK], Iterable[tuple[ObjectRef, str]]],
        on_deleted: Callable[[ObjectRef, str], None],
    ) -> None:
        """`known` returns the resources of a kind with their uids.

        `on_deleted` is called with reference and uid of each one that a list lacks. Lists of other
        kinds and of other namespaces than these are ignored; empty means the whole cluster.
        """
        self._known = known
        self._on_deleted = on_deleted
        self._kinds = {
            resource.path(namespace): (resource.gvk, namespace if resource.namespaced else None)
            for resource in resources
            for namespace in namespaces or (None,)
        }
        self._listed: dict[str, set[str]] = {}
        """Uids on the pages so far, by the path of a list whose last page is to come."""

    def on_page(self, path: str, query: Mapping[str, str], content: Json) -> None:
        """Process one page of a list: the request's path and query, and the decoded response."""
        if path not in self._kinds:
            return
        if "continue" not in query:
            self._listed[path] = set()
        uids = self._listed.setdefault(path, set())
        # Aggregated APIs may leave out any of these.
        uids |= {uid_of(item) for item in content.get("items") or ()}
        if not continue_token(content):
            self._compare(path, self._listed.pop(path))

    def _compare(self, path: str, uids: Collection[str]) -> None:
        gvk, namespace = self._kinds[path]
        for ref, uid in list(self._known(gvk)):
            if uid not in uids and namespace in {None, ref.namespace}:
                self._on_deleted(ref, uid)


_RECHECK_SECONDS = 60.0
"""Delay before a forbidden or failed watch is retried: permissions can be granted."""
_RESTART_SECONDS = 10.0
"""Delay before a watch is restarted after an internal error."""


async def watch_forever(
    stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
    gvk: GVK,
    namespace: str | None,
    take: Callable[[GVK, MetadataEvent], None],
    watched: str,
    *,
    on_interrupted: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Call `take` for each event of a kind in a namespace (None: all), until cancelled.

    `watched` names the objects in warnings, such as `owned objects`. `on_interrupted` is called
    when the watch has failed or ended, before it is tried again.
    """
    warned = False
    while True:
        try:
            async for event in stream(gvk, namespace):
                warned = False
                _deliver(take, gvk, event)
        except Forbidden as error:
            if not warned:
                _log.warning(
                    "Cannot watch: changes are noticed at the next resync only",
                    watched=watched,
                    gvk=str(gvk),
                    scope=namespace or "all namespaces",
                    error=str(error),
                    hint="grant list and watch to the operator",
                )
                warned = True
        except ApiError as error:
            _log.warning("Watch failed; retrying", gvk=str(gvk), error=str(error))
        except Exception:  # noqa: BLE001
            # Without the watch, manual edits and deletions would not be reverted.
            _log.exception("Watch failed: internal error; retrying", gvk=str(gvk))
            on_interrupted()
            await asyncio.sleep(_RESTART_SECONDS)
            continue
        on_interrupted()
        await asyncio.sleep(_RECHECK_SECONDS)


def _deliver(take: Callable[[GVK, MetadataEvent], None], gvk: GVK, event: MetadataEvent) -> None:
    """Call `take`; an error for one object must not end the watch."""
    try:
        take(gvk, event)
    except Exception:  # noqa: BLE001
        metadata = event.body.get("metadata") or {}
        _log.exception(
            "Event processing failed: internal error",
            gvk=str(gvk),
            namespace=metadata.get("namespace"),
            name=metadata.get("name"),
        )
