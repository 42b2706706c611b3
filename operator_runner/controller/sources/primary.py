"""Events of the custom resources themselves, delivered by kopf. Owner of kopf.

Only `on.event` handlers are used: they keep no state on the objects, and what becomes of an
event is decided by our own queue. kopf brings discovery, list and watch, and reconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import aiohttp
import kopf
import structlog
from kopf._cogs.clients.errors import APIError, APINotFoundError
from kopf._cogs.structs.references import Insights

from operator_runner.controller.predicates.predicate import Seen, judge
from operator_runner.controller.sources.last_seen import LastSeen
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import Expired, NotFound
from operator_runner.core.model import GVK, Cause, Json, ObjectRef, Trigger, Watch, uid_of
from operator_runner.kube.discovery import Resource


class Session(Protocol):
    """Credentials for the API server, as kopf needs them."""

    server: str

    def session(self) -> aiohttp.ClientSession:
        """Return a session that kopf may close."""


_log = structlog.get_logger(__name__)

_PAGE = 20
"""Resources that are listed with one request, which decodes them in one piece: up to 30 MB."""
_GONE = 410
_IDENTITY: Any = "operator-runner"


class PrimaryWatcher:
    """Watches the kinds of watches.yaml and says which resources are to be reconciled."""

    def __init__(
        self,
        watches: Sequence[Watch],
        relevant: Callable[[Json, Watch], bool],
        enqueue: Callable[[ObjectRef, Cause], None],
        met: Callable[[ObjectRef, Json], None],
        shown: Callable[[ObjectRef, Json | None], None] = lambda *_: None,
    ) -> None:
        """`enqueue` is called for each event that matters, `met` once for each resource.

        `shown` is called with the resource for each event, with None once it is gone.
        """
        self._watches = watches
        self._relevant = relevant
        self._enqueue = enqueue
        self._met = met
        self._shown = shown
        self._seen = LastSeen()
        self._odd: dict[ObjectRef, tuple[str, object]] = {}

    def known(self, gvk: GVK) -> Iterable[ObjectRef]:
        """Return the resources of a kind that exist, as far as events have told."""
        return [ref for ref in self._seen if ref.gvk == gvk]

    def version(self, ref: ObjectRef) -> str:
        """Return the newest resourceVersion that events have told; empty if it is not known."""
        seen = self._seen.get(ref)
        return seen.resource_version if seen is not None else ""

    def uid(self, ref: ObjectRef) -> str:
        """Return the uid of the resource of this name that exists, as far as events have told."""
        seen = self._seen.get(ref)
        return seen.uid if seen is not None else ""

    async def run(
        self,
        session: Session,
        resources: Collection[Resource],
        namespaces: Sequence[str],
        started: Callable[[], None],
    ) -> None:
        """Watch these resources until cancelled. Empty `namespaces` are all of them.

        `started` is called once kopf has taken the process's signal handlers, so that the
        caller can take them back: shutting down is its business. Raises NotFound when a kind
        has gone that is watched, or is not there for kopf yet; Expired when listing took so
        long that the list has to be begun anew.
        """
        insights = Insights()
        tasks = await kopf.spawn_tasks(
            registry=self._registry(session, resources),
            settings=_settings(),
            insights=insights,
            standalone=True,
            # For peers, of which there are none; kopf would ask for the name of the user, whom
            # a container may not know.
            identity=_IDENTITY,
            clusterwide=not namespaces,
            namespaces=list(namespaces),
        )
        started()
        scanned = asyncio.create_task(insights.ready_resources.wait())
        try:
            await asyncio.wait([*tasks, scanned], return_when=asyncio.FIRST_COMPLETED)
            if scanned.done():
                _raise_if_unseen(resources, insights)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                _raise_if_failed(task)
            raise RuntimeError("kopf ended by itself")
        finally:
            try:
                await end_tasks([*tasks, scanned])
            finally:
                await end_tasks(_left_by_kopf())

    def _registry(self, session: Session, resources: Collection[Resource]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(aiohttp_session=session.session(), server=session.server)

        watches = {watch.gvk: watch for watch in self._watches}
        for resource in resources:
            gvk = resource.gvk
            watched = kopf.on.event(
                group=gvk.group,
                version=gvk.version,
                plural=resource.plural,
                id=str(gvk),
                registry=registry,
            )
            watched(self._handler(watches[gvk]))
        return registry

    def _handler(self, watch: Watch) -> Callable[..., Any]:
        async def deliver(event: Any, **_: Any) -> None:
            self.deliver(watch, event["type"], dict(event["object"]))

        return deliver

    def deliver(self, watch: Watch, type_: str | None, body: Json) -> None:
        """Take one event in; its type is None for a resource found by listing.

        Of an event that is not understood the reconcile learns: it says so on the resource.
        """
        metadata = body["metadata"]
        ref = ObjectRef(watch.gvk, metadata.get("namespace") or "", metadata["name"])
        try:
            self._deliver(ref, watch, type_, body)
        except Exception:  # noqa: BLE001 one resource must not harm the others
            state = uid_of(body), metadata.get("generation")
            if self._odd.get(ref) != state:
                self._odd[ref] = state
                _log.exception(
                    "An event was not understood: a mistake in operator-runner", resource=str(ref)
                )
                self._enqueue(ref, Cause(Trigger.SPEC, "an event that was not understood"))
        else:
            self._odd.pop(ref, None)

    def _deliver(self, ref: ObjectRef, watch: Watch, type_: str | None, body: Json) -> None:
        if type_ == "DELETED":
            if self.uid(ref) not in {"", uid_of(body)}:
                # kopf delivers by uid: the event of the resource that has the name now came first.
                return
            self._seen.drop(ref)
            self._shown(ref, None)
            self._enqueue(ref, Cause(Trigger.DELETION, "deleted"))
            return
        self._shown(ref, body)
        new = Seen.of(body, relevant=self._relevant(body, watch))
        old = self._seen.get(ref)
        if old is None or old.uid != new.uid:
            self._met(ref, body)
        cause = judge(old, new, watch, listed=type_ is None)
        self._seen.put(ref, new)
        if cause is not None:
            self._enqueue(ref, cause)


def _left_by_kopf() -> list[asyncio.Task[Any]]:
    """Return the watches of other kinds that kopf lets go on when that of one has failed."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")]


def _raise_if_unseen(resources: Iterable[Resource], insights: Insights) -> None:
    """Raise NotFound for a kind that kopf did not find, for it would never look again.

    It asks by itself, and of several API servers the one that answers it may be behind.
    """
    found = {(each.group, each.version, each.plural) for each in insights.watched_resources}
    for resource in resources:
        gvk = resource.gvk
        if (gvk.group, gvk.version, resource.plural) not in found:
            raise NotFound(f"the API server does not tell everybody yet that there is {gvk}")


def _raise_if_failed(task: asyncio.Task[None]) -> None:
    try:
        task.result()
    except APINotFoundError as error:
        raise NotFound(f"the API server does not know a watched kind any more: {error}") from error
    except APIError as error:
        if error.status != _GONE:
            raise
        raise Expired(
            f"the API server has forgotten the list that we were reading: {error}"
        ) from error


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # Kinds that come later are looked for by kinds.py, with no right to list CRDs.
    settings.scanning.disabled = True
    # The API server ends a watch after this many seconds, so that a dead connection
    # that nobody noticed cannot last; kopf goes on where it was.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.reconnect_backoff = 0.5
    # A thousand resources come in pages, and what kopf keeps of each goes with its event: memory
    # that was needed once stays with the process.
    settings.watching.chunk_size = _PAGE
    settings.queueing.idle_timeout = 0.1
    return settings
