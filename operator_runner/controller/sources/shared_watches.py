"""One watch of each kind, whose events are passed to all subscribers.

As the shared informers of client-go, but without a copy of the objects: each consumer keeps what it
needs. Metadata is requested unless a consumer needs more, and a label selector is sent if all
consumers of the kind have the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.watch import EventType, Extraction, MetadataEvent, watch_forever

_log = structlog.get_logger(__name__)

_FIRST_LIST_SECONDS = 30.0
"""Time limit of `wait_listed` for the first lists."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The requested watch of a kind."""

    gvk: GVK
    label_selector: str = ""
    extraction: Extraction | None = None


@dataclass(frozen=True, slots=True)
class SharedEvent:
    """An event for one consumer; see MetadataEvent for `type` and `body`.

    `namespace` is that of the watch, None for all. `existed` is True for objects of the first
    list. `extracted` is what the consumer's own function has returned.
    """

    type: EventType
    body: Json
    namespace: str | None
    existed: bool = False
    extracted: Any = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """The events that a consumer wants; `watched` names the objects in warnings.

    `extract` is called for each object before the rest of it is dropped, with its metadata, or
    with the `whole` of it.
    """

    gvk: GVK
    take: Callable[[SharedEvent], None]
    watched: str
    label_selector: str = ""
    extract: Callable[[Json], Any] | None = None
    whole: bool = False


_Watch = tuple[GVK, str | None]


class SharedWatches:
    """Watches the kinds of all subscriptions."""

    def __init__(
        self,
        subscriptions: Iterable[Subscription],
        stream: Callable[[WatchRequest, str | None], AsyncIterator[MetadataEvent]],
        namespaces: Sequence[str],
    ) -> None:
        """`stream` watches a kind in a namespace (None: all); `namespaces` restricts it."""
        self._by_kind: dict[GVK, list[Subscription]] = {}
        for each in subscriptions:
            self._by_kind.setdefault(each.gvk, []).append(each)
        self._stream = stream
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._unlisted: set[_Watch] = {
            (gvk, namespace) for gvk in self._by_kind for namespace in self._namespaces
        }
        self._late: set[_Watch] = set()
        """Watches whose first list failed: what they list may be new."""
        self._listed = asyncio.Event()
        self._check_listed()

    async def wait_listed(self) -> None:
        """Return when the first list of each kind was complete or failed, or takes long.

        A run that starts afterwards has seen all objects that lead to no run because they existed.
        """
        try:
            async with asyncio.timeout(_FIRST_LIST_SECONDS):
                await self._listed.wait()
        except TimeoutError:
            kinds = sorted({str(gvk) for gvk, _ in self._unlisted})
            _log.warning("First lists are slow: listed objects may start runs", kinds=kinds)
            for each in list(self._unlisted):
                self._list_failed(each)

    async def run(self) -> None:
        """Watch the kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for gvk in self._by_kind:
                for namespace in self._namespaces:
                    group.create_task(self._watch(gvk, namespace), name=f"watch {gvk}")
            await asyncio.Event().wait()

    async def _watch(self, gvk: GVK, namespace: str | None) -> None:
        subscriptions = self._by_kind[gvk]
        selectors = {each.label_selector for each in subscriptions}
        selector = selectors.pop() if len(selectors) == 1 else ""
        extraction = None
        if any(each.extract for each in subscriptions):
            whole = any(each.whole for each in subscriptions)
            extraction = Extraction(partial(_extract, subscriptions), whole)
        request = WatchRequest(gvk, selector, extraction)
        await watch_forever(
            lambda _, scope: self._stream(request, scope),
            gvk,
            namespace,
            partial(self._take, namespace),
            " and ".join(dict.fromkeys(each.watched for each in subscriptions)),
            on_interrupted=partial(self._list_failed, (gvk, namespace)),
        )

    def _take(self, namespace: str | None, gvk: GVK, event: MetadataEvent) -> None:
        watch = gvk, namespace
        if event.type is EventType.SYNCED:
            self._unlisted.discard(watch)
            self._late.discard(watch)
            self._check_listed()
        existed = watch in self._unlisted and watch not in self._late
        for number, each in enumerate(self._by_kind[gvk]):
            extracted = event.extracted[number] if event.extracted is not None else None
            each.take(SharedEvent(event.type, event.body, namespace, existed, extracted))

    def _list_failed(self, watch: _Watch) -> None:
        if watch in self._unlisted:
            self._late.add(watch)
            self._check_listed()

    def _check_listed(self) -> None:
        if self._unlisted <= self._late:
            self._listed.set()


def _extract(subscriptions: Sequence[Subscription], body: Json) -> tuple[Any, ...]:
    return tuple(_extracted(each, body) for each in subscriptions)


def _extracted(subscription: Subscription, body: Json) -> Any:
    """Return what a consumer keeps of an object; an internal error must not end the watch."""
    if subscription.extract is None:
        return None
    try:
        return subscription.extract(body)
    except Exception:  # noqa: BLE001
        _log.exception("Event processing failed: internal error", object=str(ObjectRef.of(body)))
        return None
