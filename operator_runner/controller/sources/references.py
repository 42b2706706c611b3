"""Events of objects that resources refer to: a Secret, a ConfigMap, another resource.

`references` of a watch declares the kinds and the fields with their names. Their metadata is
watched; objects without a reference to them cause no reconcile.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from operator_runner.controller.predicates.changes import Version, difference
from operator_runner.controller.sources.watch_retry import watch_forever
from operator_runner.core.model import GVK, Cause, Json, ObjectRef, Trigger, Watch
from operator_runner.kube.watch import EventType, MetadataEvent


class References:
    """Maps referenced objects to resources, which are reconciled when the object changes."""

    def __init__(
        self,
        watches: Sequence[Watch],
        named: Callable[[Json, Watch], Iterable[ObjectRef]],
        stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
        enqueue: Callable[[ObjectRef, Cause], None],
        namespaces: Sequence[str],
    ) -> None:
        """`named` returns what a resource refers to; `stream` watches a kind, see `watch_forever`.

        A reference may have a namespace although its kind is cluster-scoped.
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

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Update the references of a resource; None for a deleted one."""
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
                        watch_forever(self._stream, gvk, namespace, take, "referenced objects")
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
        existed = (gvk, namespace) not in self._synced
        if what := self._news(target, event, existed=existed):
            for ref in tuple(by):
                self._enqueue(ref, Cause(Trigger.REFERENCE, f"{target} {what}", target))

    def _news(self, target: ObjectRef, event: MetadataEvent, *, existed: bool) -> str:
        """Return what happened to an object; empty if it existed before or no change matters."""
        old = self._versions.pop(target, None)
        if event.type is EventType.DELETED:
            return "deleted"
        new = self._versions[target] = Version.of(event.body["metadata"])
        if old is not None:
            return difference(old, new)
        if event.type is EventType.ADDED:
            # The run at start has seen objects that existed before.
            return "" if existed else "created"
        return "changed"
