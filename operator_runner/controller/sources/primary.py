"""Events of the watched custom resources, delivered by kopf. The only module that imports kopf.

Only `on.event` handlers are used: they keep no state on the objects, and our own queue handles
the events. kopf provides discovery, list and watch, and reconnects.

kopf decodes responses by itself: a list with `json()`, a watch with `content.iter_chunked()`. Both
return objects within the bounds of `core.json_bounds` here, by the sessions of `KopfSession`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import timedelta
from typing import Any

import aiohttp
import structlog
from aiohttp.client_reqrep import ClientResponse
from yarl import URL

from operator_runner.config.watches.selection import is_deselected, is_selected
from operator_runner.controller.predicates.primary_events import (
    SeenResource,
    SeenResources,
    ignored_annotation,
    reconcile_cause,
)
from operator_runner.core import json_bounds
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.durations import short_duration
from operator_runner.core.errors import Expired, NotFound
from operator_runner.core.imports import without_package
from operator_runner.core.model import GVK, Cause, Json, ObjectRef, Trigger, Watch, uid_of
from operator_runner.kube.api import is_watch
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.session import Connection, split_lines
from operator_runner.kube.watch import MissedDeletions
from operator_runner.reconcile.annotations import clamp_period, read_overrides

# kopf takes its objects too, which there are none of here: it imports pydantic, 5 MiB.
with without_package("kubernetes.client"):
    import kopf

_log = structlog.get_logger(__name__)

_PAGE_SIZE = 20
"""Resources listed with one request, whose response is decoded in one piece: up to 30 MB."""
_WATCH_TIMEOUT_SECONDS = 300
"""The API server ends a watch after this time, so that a connection that died unnoticed does not
last; kopf resumes from the last resourceVersion."""
_IDLE_WORKER_SECONDS = 0.1
"""kopf's worker of a resource ends this long after its last event, to free its memory."""
_OK, _NOT_FOUND, _GONE = 200, 404, 410
_IDENTITY: Any = "operator-runner"
"""Identity for kopf's peering, which is off; a container may lack the default, a user's name."""


class _NoDiffs(kopf.DiffBaseStorage):
    """Finds no changes of objects: kopf copies each object twice to compare it with the last one.

    Only handlers of changes need that, and there are none.
    """

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers, and copies nothing to remove it from an object."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence


class PrimaryWatcher:
    """Watches the kinds of watches.yaml and enqueues the resources that need a reconcile."""

    def __init__(
        self,
        watches: Sequence[Watch],
        enqueue: Callable[[ObjectRef, Cause], None],
        on_first_seen: Callable[[ObjectRef, Json], None],
        seen: SeenResources,
    ) -> None:
        """`enqueue` is called for each event that matters, `on_first_seen` once per resource.

        `seen` gets what events show.
        """
        self._watches = watches
        self._enqueue = enqueue
        self._on_first_seen = on_first_seen
        self._listeners: list[Callable[[ObjectRef, Json | None], None]] = []
        self._seen = seen
        self._failed_events: dict[ObjectRef, tuple[str, object]] = {}
        """Uid and generation of resources whose last event raised an internal error."""

    def add_listener(self, on_change: Callable[[ObjectRef, Json | None], None]) -> None:
        """Call `on_change` for each event with the resource, with None once it is deleted."""
        self._listeners.append(on_change)

    async def run(
        self,
        connection: Connection,
        resources: Collection[ApiResource],
        namespaces: Sequence[str],
        on_started: Callable[[], None],
    ) -> None:
        """Watch these resources until cancelled. Empty `namespaces` means all of them.

        `on_started` is called once kopf has set the process's signal handlers, so that the caller
        can set its own again. Raises NotFound when the CRD of a watched kind was deleted, or the
        API server that kopf uses does not serve it yet; Expired when listing took so long that
        it has to start over.
        """
        unserved: asyncio.Future[GVK] = asyncio.get_running_loop().create_future()

        missed = MissedDeletions(resources, namespaces, self._uids, self._on_missed_deletion)

        def observe(path: str, query: Mapping[str, str], status: int, content: Any) -> None:
            if status == _OK:
                missed.on_page(path, query, content)
            if status in {_OK, _NOT_FOUND} and not unserved.done():
                for gvk in unserved_kinds(resources, path, content):
                    unserved.set_result(gvk)
                    return

        session = KopfSession(connection, observe)
        tasks = await kopf.spawn_tasks(
            registry=self._registry(session, resources),
            settings=_settings(),
            standalone=True,
            identity=_IDENTITY,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
        )
        on_started()
        try:
            await asyncio.wait([*tasks, unserved], return_when=asyncio.FIRST_COMPLETED)
            if unserved.done():
                # kopf scans once, so it would never find this kind.
                raise NotFound(f"{unserved.result()}: not all API servers serve it yet")
            for task in tasks:
                if task.done() and not task.cancelled():
                    _raise_failure(task)
            raise RuntimeError("kopf ended unexpectedly")
        finally:
            try:
                await end_tasks(tasks)
            finally:
                # When the watch of one kind fails, kopf leaves the watches of the others running.
                await session.end_tasks()

    def _registry(
        self, session: KopfSession, resources: Collection[ApiResource]
    ) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(aiohttp_session=session.open(), server=session.server)

        watches = {watch.gvk: watch for watch in self._watches}
        for resource in resources:
            gvk = resource.gvk
            register = kopf.on.event(
                group=gvk.group,
                version=gvk.version,
                plural=resource.plural,
                id=str(gvk),
                registry=registry,
            )
            register(self._handler(watches[gvk]))
        return registry

    def _uids(self, gvk: GVK) -> Iterator[tuple[ObjectRef, str]]:
        return ((ref, self._seen.uid(ref)) for ref in self._seen.of_kind(gvk))

    def _on_missed_deletion(self, ref: ObjectRef, uid: str) -> None:
        """Process a resource as deleted that a list lacks; the event was missed."""
        body = {"metadata": {"name": ref.name, "namespace": ref.namespace, "uid": uid}}
        watch = next(watch for watch in self._watches if watch.gvk == ref.gvk)
        self.on_event(watch, "DELETED", body)

    def _handler(self, watch: Watch) -> Callable[..., Any]:
        async def handle(event: Any, **_: Any) -> None:
            self.on_event(watch, event["type"], dict(event["object"]))

        return handle

    def on_event(self, watch: Watch, type_: str | None, body: Json) -> None:
        """Process one event; its type is None for a resource found by listing.

        After an internal error the resource is enqueued: the reconcile reports on its status.
        """
        ref = ObjectRef.of_kind(watch.gvk, body)
        try:
            self._process(ref, watch, type_, body)
        except Exception:  # noqa: BLE001 one resource must not affect others
            state = uid_of(body), body["metadata"].get("generation")
            if self._failed_events.get(ref) != state:
                self._failed_events[ref] = state
                _log.exception("Event processing failed: internal error", resource=str(ref))
                self._enqueue(ref, Cause(Trigger.SPEC, "event processing failed"))
        else:
            self._failed_events.pop(ref, None)

    def _process(self, ref: ObjectRef, watch: Watch, type_: str | None, body: Json) -> None:
        if type_ == "DELETED":
            if self._seen.uid(ref) not in {"", uid_of(body)}:
                # kopf orders events by uid: those of the next resource of this name may be earlier.
                return
            self._seen.drop(ref)
            for on_change in self._listeners:
                on_change(ref, None)
            self._enqueue(ref, Cause(Trigger.DELETION, "deleted"))
            return
        for on_change in self._listeners:
            on_change(ref, body)
        new = SeenResource.of(
            body,
            selected=is_selected(body, watch),
            deselected=is_deselected(body, watch),
            ignored=ignored_annotation(watch),
            built_in=ref.gvk.is_built_in,
        )
        old = self._seen.get(ref)
        if old is None or old.uid != new.uid:
            self._on_first_seen(ref, body)
        cause = reconcile_cause(old, new, watch, listed=type_ is None)
        self._seen.put(ref, new)
        if cause is not None:
            self._enqueue(ref, cause)


def unserved_kinds(resources: Iterable[ApiResource], path: str, content: Any) -> list[GVK]:
    """Return the kinds that a discovery response should list and does not. Pure.

    `path` is `/api`, `/apis` or one of a group version, `content` the decoded response; a Status
    (404) lists nothing. Other paths and kinds that the response is not about give no result.
    """
    answer = content if isinstance(content, dict) else {}
    if path == "/api":
        served = {("", version) for version in answer.get("versions") or ()}
        return [each.gvk for each in resources if not each.gvk.group and _key(each) not in served]
    if path == "/apis":
        served = {
            (group["name"], version["version"])
            for group in answer.get("groups") or ()
            for version in group["versions"]
        }
        return [each.gvk for each in resources if each.gvk.group and _key(each) not in served]
    plurals = {entry["name"] for entry in answer.get("resources") or ()}
    return [
        each.gvk
        for each in resources
        if path == each.path().rpartition("/")[0] and each.plural not in plurals
    ]


def _key(resource: ApiResource) -> tuple[str, str]:
    return resource.gvk.group, resource.gvk.version


def _raise_failure(task: asyncio.Task[None]) -> None:
    try:
        task.result()
    except Exception as error:
        # kopf's own errors are chained to those of aiohttp.
        http = error.__cause__
        status = http.status if isinstance(http, aiohttp.ClientResponseError) else 0
        if status == _NOT_FOUND:
            raise NotFound(f"watched kind is no longer served: {error}") from error
        if status == _GONE:
            raise Expired(f"list continue token expired: {error}") from error
        raise


class AnnotatedPeriods:
    """Enqueues resources whose annotation reconcile-period changes.

    Otherwise their next run would read it, which may be hours away. A run that is due earlier
    stays: a period that gets longer, or is removed, takes effect after that run.
    """

    def __init__(self, enqueue_after: Callable[[ObjectRef, Cause, float], None]) -> None:
        """`enqueue_after` takes a delay in seconds; it keeps a run that is due earlier."""
        self._enqueue_after = enqueue_after
        self._periods: dict[ObjectRef, timedelta] = {}

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Compare the period of a resource with its last one; None for a deleted resource.

        The first run of a new resource, which follows, replaces the one that is scheduled here.
        """
        before = self._periods.pop(ref, None)
        period = None if body is None else read_overrides(body).period
        if period is None:
            return
        self._periods[ref] = period
        if period and period != before:
            clamped = clamp_period(period)
            cause = Cause(Trigger.PERIOD, short_duration(clamped))
            self._enqueue_after(ref, cause, clamped.total_seconds())


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # kind_discovery.py finds kinds that are installed later, without permission to list CRDs.
    settings.scanning.disabled = True
    settings.watching.server_timeout = _WATCH_TIMEOUT_SECONDS
    settings.watching.client_timeout = _WATCH_TIMEOUT_SECONDS + 30
    settings.watching.reconnect_backoff = 0.5
    settings.watching.chunk_size = _PAGE_SIZE
    settings.queueing.idle_timeout = _IDLE_WORKER_SECONDS
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.progress_storage = _NoProgress()
    return settings


_LEVELS_AROUND_ITEM, _LEVELS_AROUND_EVENT = 2, 1
"""Levels of nesting around an object in a list and in a watch event."""

OnJson = Callable[[str, Mapping[str, str], int, Any], None]
"""Called for each response that kopf decodes as JSON, which are all but those of watches.

The arguments are API path and query of the request, HTTP status and decoded content.
"""


class KopfSession:
    """The sessions of one kopf operator, and the tasks that send requests on them."""

    def __init__(self, connection: Connection, on_json: OnJson = lambda *_: None) -> None:
        """Open nothing yet. `on_json` observes the responses, watches aside."""
        self._connection = connection
        self._on_json = on_json
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._connection.server

    def open(self) -> aiohttp.ClientSession:
        """Return a session that kopf may close: after a 401 it closes it and opens another.

        The connections stay open until the Connection is closed. Watches are reported to the
        listeners of `Connection.on_watch`.
        """
        return self._connection.session(
            _bounded_response(self._on_response, self._watch_started), self._record_task
        )

    async def end_tasks(self) -> None:
        """Cancel every task that has sent a request on these sessions; return when all ended."""
        await end_tasks(self._tasks)

    async def _record_task(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
        return await handler(request)

    def _on_response(self, url: URL, status: int, content: Any) -> None:
        self._on_json(self._connection.path_of(url), url.query, status, content)

    def _watch_started(self, url: URL) -> Callable[[], None] | None:
        """Report an accepted watch; return the callback for its end, None for other requests."""
        if not is_watch(url.query):
            return None
        return self._connection.watch_started(self._connection.path_of(url))


def _bounded_response(
    on_json: Callable[[URL, int, Any], None],
    watch_started: Callable[[URL], Callable[[], None] | None],
) -> type[ClientResponse]:
    class BoundedResponse(ClientResponse):
        """A response whose objects are within the bounds."""

        async def start(self, connection: Any) -> ClientResponse:
            await super().start(connection)
            ended = watch_started(self.url) if self.status == _OK else None
            lines: Any = _BoundedLines(self.content, ended)
            self.content = lines
            return self

        async def json(self, **_: Any) -> Any:
            raw = await self.read()
            content = json_bounds.decode(raw, _LEVELS_AROUND_ITEM) if raw.strip() else None
            on_json(self.url, self.status, content)
            return content

    return BoundedResponse


class _BoundedLines:
    """The content of a response; chunks are whole lines of JSON within the bounds."""

    def __init__(self, content: aiohttp.StreamReader, ended: Callable[[], None] | None) -> None:
        self._content = content
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines; `size` is the number of bytes to read at a time."""
        try:
            async for line in split_lines(self._content.iter_chunked(size)):
                yield json_bounds.shorten(line, _LEVELS_AROUND_EVENT) + b"\n"
        finally:
            if self._ended is not None:
                self._ended()
