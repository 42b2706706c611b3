"""Events of the objects that resources own: watched by metadata only, and only kinds in use.

The proxy tells which objects a run made or found, and which versions its writes led to.
The event of one's own write is thereby known and wakes nobody.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from operator_runner.asynctasks import end_tasks
from operator_runner.kube.watching import MetadataEvent
from operator_runner.model import GVK, Cause, Json, ObjectRef, Trigger, Watch
from operator_runner.triggers.changes import Version, difference
from operator_runner.triggers.following import follow
from operator_runner.triggers.ownwrites import OwnWrites

_OWN_WRITES = 64
"""Versions of one object that are known as own writes; more than a run makes of it."""


@dataclass(slots=True)
class _Dependent:
    """An owned object: by whom, and what of it is known."""

    owners: set[ObjectRef] = field(default_factory=set)
    version: Version | None = None
    own_writes: OrderedDict[str, None] = field(default_factory=OrderedDict)
    deleted_by_run: bool = False
    answered: str = ""
    """resourceVersion of the last answer to a run that showed the object."""
    fresh: bool = False
    """Whether neither an answer before the last one nor an event had shown this version."""

    def has_shown(self, resource_version: str) -> bool:
        """Whether this resourceVersion is none that a write has just made."""
        told = self.version.resource_version if self.version is not None else ""
        return resource_version in {self.answered, told}


class Dependents:
    """Knows what is owned by whom, and says which owner is to be reconciled."""

    def __init__(
        self,
        stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
        enqueue: Callable[[ObjectRef, Cause], None],
        namespaces: Sequence[str],
        *,
        enabled: bool = True,
    ) -> None:
        """`stream` watches a kind in a namespace (None: all); `namespaces` restricts it.

        Not `enabled`, nothing is watched: ansible-operator does so with --inject-owner-ref=false.
        """
        self._enabled = enabled
        self._stream = stream
        self._enqueue = enqueue
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._objects: dict[ObjectRef, _Dependent] = {}
        self._watching: dict[GVK, list[asyncio.Task[None]]] = {}
        self._running: dict[ObjectRef, list[tuple[ObjectRef, MetadataEvent]]] = {}
        self.writes = OwnWrites()

    # What the proxy tells ------------------------------------------------------------

    def observed(
        self, owner: ObjectRef, dependent: ObjectRef, metadata: Json, watch: Watch
    ) -> None:
        """Take note of an object that belongs to `owner`, as a response to its run showed it."""
        wanted = self._enabled and watch.watch_dependent_resources
        if not wanted or dependent.gvk in watch.blacklist:
            return
        known = self._objects.setdefault(dependent, _Dependent())
        known.owners.add(owner)
        answered = metadata.get("resourceVersion", "")
        known.fresh, known.answered = not known.has_shown(answered), answered
        if known.version is None:
            # Later sightings are no reason to forget a change that the role may not have met.
            known.version = Version.of(metadata)
        if dependent.gvk not in self._watching:
            self._watching[dependent.gvk] = [
                asyncio.create_task(
                    follow(
                        self._stream, dependent.gvk, namespace, self._take, "what resources own"
                    ),
                    name=f"watch {dependent.gvk}",
                )
                for namespace in (self._namespaces if dependent.namespace else (None,))
            ]

    def wrote(
        self, owner: ObjectRef, dependent: ObjectRef, resource_version: str, verb: str
    ) -> None:
        """Take note of a write of `owner`'s run, whose event shall wake nobody."""
        known = self._objects.get(dependent)
        if known is None or owner not in known.owners:
            self.writes.wrote_elsewhere(owner, dependent, resource_version)
            return
        if verb == "delete":
            known.deleted_by_run = True
            return
        if known.fresh or not known.has_shown(resource_version):
            self.writes.wrote(owner, dependent)
        known.fresh, known.answered = False, resource_version
        known.own_writes[resource_version] = None
        while len(known.own_writes) > _OWN_WRITES:
            known.own_writes.popitem(last=False)

    def edited_itself(self, owner: ObjectRef, metadata: Json) -> None:
        """Take note that a run wrote the very resource that it works for."""
        self.writes.edited(owner, metadata)

    @contextmanager
    def during(self, owner: ObjectRef) -> Iterator[None]:
        """Hold back events for an owner while it runs: its own writes are known only then."""
        self._running[owner] = []
        self.writes.begin(owner)
        try:
            yield
        finally:
            for ref, event in self._running.pop(owner):
                self._judge(ref, event)

    def forget(self, owner: ObjectRef) -> None:
        """Drop what belongs to an owner that is gone."""
        self.writes.forget(owner)
        for ref, known in list(self._objects.items()):
            known.owners.discard(owner)
            if not known.owners:
                del self._objects[ref]

    async def stop(self) -> None:
        """End all watches."""
        await end_tasks(task for tasks in self._watching.values() for task in tasks)

    # What the API tells --------------------------------------------------------------

    def _take(self, gvk: GVK, event: MetadataEvent) -> None:
        if event.type == "SYNCED":
            return
        metadata = event.body["metadata"]
        ref = ObjectRef(gvk, metadata.get("namespace") or "", metadata["name"])
        known = self._objects.get(ref)
        if known is None:
            return
        held = next((owner for owner in known.owners if owner in self._running), None)
        if held is None:
            self._judge(ref, event)
        else:
            self._running[held].append((ref, event))

    def _judge(self, ref: ObjectRef, event: MetadataEvent) -> None:
        known = self._objects.get(ref)
        what = self._news(known, event) if known is not None else ""
        if known is not None and what:
            for owner in known.owners:
                self._enqueue(owner, Cause(Trigger.DEPENDENT, f"{ref} {what}", ref))

    def _news(self, known: _Dependent, event: MetadataEvent) -> str:
        """Return what happened to an owned object that its owner did not do itself."""
        if event.type == "DELETED":
            own, known.deleted_by_run = known.deleted_by_run, False
            known.version = None
            return "" if own else "deleted"
        new = Version.of(event.body["metadata"])
        old = known.version
        if old is not None and new.is_older_than(old):
            return ""
        known.version = new
        if new.resource_version in known.own_writes or old is None:
            return ""
        return difference(old, new)
