"""Events of objects that resources name but did not make: a Secret, a ConfigMap, another resource.

`references` of a watch says which kinds these are and where a resource names them. They are
watched by metadata only; what nobody names wakes nobody.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from operator_runner.controller.predicates.changes import Version, difference
from operator_runner.controller.sources.watch_retry import follow
from operator_runner.core.model import GVK, Cause, Json, ObjectRef, Trigger, Watch
from operator_runner.kube.watch import EventType, MetadataEvent


class References:
    """Knows who names what, and says who is to be reconciled when that changes."""

    def __init__(
        self,
        watches: Sequence[Watch],
        named: Callable[[Json, Watch], Iterable[ObjectRef]],
        stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
        enqueue: Callable[[ObjectRef, Cause], None],
        namespaces: Sequence[str],
    ) -> None:
        """`named` tells what a resource names; `stream` watches a kind, see `follow`.

        An object may be named with a namespace that its kind does not have.
        """
        self._watches = {watch.gvk: watch for watch in watches if watch.references}
        self._named = named
        self._stream = stream
        self._enqueue = enqueue
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._names: dict[ObjectRef, frozenset[ObjectRef]] = {}
        self._named_by: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)
        self._versions: dict[ObjectRef, Version] = {}
        self._synced: set[tuple[GVK, str | None]] = set()

    def shown(self, ref: ObjectRef, body: Json | None) -> None:
        """Take note of what a resource names now; None for one that is gone."""
        watch = self._watches.get(ref.gvk)
        if watch is None:
            return
        new = frozenset() if body is None else frozenset(self._named(body, watch))
        old = self._names.pop(ref, frozenset())
        if new:
            self._names[ref] = new
        for target in new - old:
            self._named_by[target].add(ref)
        for target in old - new:
            self._named_by[target].discard(ref)
            if not self._named_by[target]:
                del self._named_by[target]
                self._versions.pop(target, None)

    async def run(self) -> None:
        """Watch the kinds until cancelled."""
        kinds = {each.gvk for watch in self._watches.values() for each in watch.references}
        async with asyncio.TaskGroup() as group:
            for gvk in kinds:
                for namespace in self._namespaces:
                    take = functools.partial(self._take, namespace)
                    group.create_task(
                        follow(self._stream, gvk, namespace, take, "what resources refer to")
                    )
            await asyncio.Event().wait()

    def _take(self, namespace: str | None, gvk: GVK, event: MetadataEvent) -> None:
        if event.type is EventType.SYNCED:
            self._synced.add((gvk, namespace))
            return
        metadata = event.body["metadata"]
        target = ObjectRef(gvk, metadata.get("namespace") or "", metadata["name"])
        by = self._named_by.get(target)
        if not by:
            return
        was_there = (gvk, namespace) not in self._synced
        if what := self._news(target, event, was_there=was_there):
            for ref in tuple(by):
                self._enqueue(ref, Cause(Trigger.REFERENCE, f"{target} {what}", target))

    def _news(self, target: ObjectRef, event: MetadataEvent, *, was_there: bool) -> str:
        """Return what happened to an object; empty if it was there, or nothing that matters."""
        old = self._versions.pop(target, None)
        if event.type is EventType.DELETED:
            return "deleted"
        new = self._versions[target] = Version.of(event.body["metadata"])
        if old is not None:
            return difference(old, new)
        if event.type is EventType.ADDED:
            # What is there from the beginning is met by the run at start.
            return "" if was_there else "created"
        return "changed"
