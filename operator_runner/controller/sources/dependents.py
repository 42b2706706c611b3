"""Events of the objects that resources own. Only kinds in use are watched.

The proxy reports which objects a run created or read, and the resourceVersions of its writes. The
event of a run's own write is thereby recognized and causes no reconcile. A change of an object's
readiness, or of a field of `wakeOn`, reconciles the owner, regardless of the last writer. While
objects of the owner are not ready, one that becomes ready waits for the others as long as the
owner's last run has taken, within a limit; so does one that the run itself made not ready.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from operator_runner.controller.predicates.dependent_changes import Version, difference
from operator_runner.controller.predicates.wake_on_fields import (
    NO_FIELDS,
    WakeOnChanges,
    WakeOnFields,
)
from operator_runner.controller.sources.debouncing import Debounced, Debouncer
from operator_runner.controller.sources.dependent_objects import DependentObjects, ObjectExtract
from operator_runner.controller.sources.own_writes import OwnWrites
from operator_runner.controller.sources.pod_causes import EVENT, PodCauses
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.model import (
    GVK,
    Cause,
    FieldChange,
    Json,
    ObjectRef,
    Trigger,
    Watch,
    is_certainly_older,
)
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.object_readiness import (
    POD_REFUSED,
    DependentsReadiness,
    Health,
    Readiness,
    change,
    readiness_of,
    refusal_of,
)
from operator_runner.kube.watch import EventType, Extraction, MetadataEvent, watch_forever
from operator_runner.telemetry.runs.records import RunStore

_OWN_WRITES = 64
"""Maximum resourceVersions of own writes kept per object; a run makes fewer."""
_CATCH_UP_SECONDS = 1.0
"""Controllers observe a new spec within some 50 ms, unless they are not running."""
_UNCLAIMED = 256
"""Maximum objects without an owner whose last event is kept while runs are in progress."""


_NO_HEALTH = Health()


@dataclass(slots=True)
class _Dependent:
    """An owned object, its owners and its last known state."""

    owners: set[ObjectRef] = field(default_factory=set)
    version: Version | None = None
    own_writes: OrderedDict[str, None] = field(default_factory=OrderedDict)
    deleted_by_run: bool = False
    answered: str = ""
    """resourceVersion of the object in the last response to a run."""
    fresh: bool = False
    """Whether no earlier response and no event had this version."""
    readiness: Readiness = Readiness.UNKNOWN
    """The readiness that the owner's last run has seen, or was triggered by."""
    read_behind: bool = False
    """Whether the last read, by a run or for its status, had a status for an older spec."""
    rolling_out: bool = False
    """Whether a run has written it, and its status does not show it ready with that spec yet."""
    was_ready: bool = False
    """Whether an object of this name has ever become ready."""
    reason: str = ""
    """Why it is not ready, as the owner's last run has seen, or was triggered by."""
    newest: str = ""
    """resourceVersion of the newest state that was seen, also during a run."""

    def has_shown(self, resource_version: str) -> bool:
        """Return whether this resourceVersion was seen before, so that it is not a new write."""
        last_event = self.version.resource_version if self.version is not None else ""
        return resource_version in {self.answered, last_event}

    def take(self, health: Health) -> str:
        """Update the health from an event; return what changed, for display."""
        caught_up = self.read_behind and not health.behind
        self.read_behind = self.read_behind and not caught_up
        old, self.readiness = self.readiness, health.readiness
        # A run that has read the status of the spec before may have reported it.
        is_unready = health.behind is True or self.readiness is Readiness.NOT_READY
        self.rolling_out = self.rolling_out and is_unready and not caught_up
        return change(old, self.readiness) or ("status is up to date" if caught_up else "")

    def new_reason(self, health: Health) -> str:
        """Update why it is not ready from an event; return that if it is new."""
        old, self.reason = self.reason, health.reason
        return health.reason if health.reason != old else ""


class _StatusChange(NamedTuple):
    """A change in the status of an object that concerns an owner."""

    owner: ObjectRef
    cause: Cause
    can_wait: bool
    """Whether it is only that the object is ready now, or is being rolled out by the owner."""


@dataclass(slots=True)
class _OwnerSlot:
    """What is known of the objects of one resource."""

    owner: ObjectRef
    ended: Callable[[_OwnerSlot], None]
    objects: set[ObjectRef] = field(default_factory=set)
    unready: set[ObjectRef] = field(default_factory=set)
    """Those that are not ready."""
    waited_for: dict[ObjectRef, Health] | None = None
    """The newest state of those that are not ready, of watches that show it; None if unknown."""
    caught_up: asyncio.Event | None = None
    """Set when no status of the objects is older than its spec any more."""
    held: list[tuple[ObjectRef, MetadataEvent]] | None = None
    """Events that wait for the end of the run in progress."""
    is_new: bool = False
    """Whether that is the first run."""
    run_seconds: float = 0.0
    """How long the last run has taken."""

    @property
    def is_behind(self) -> bool:
        """Whether the status of an object may be older than its spec."""
        return any(health.behind for health in (self.waited_for or {}).values())

    def close(self) -> None:
        """See `SupportsClose`."""
        self.ended(self)


class Dependents:
    """Maps owned objects to their owners, and enqueues the owners when an object changes."""

    def __init__(
        self,
        stream: Callable[[GVK, str | None], AsyncIterator[MetadataEvent]],
        enqueue: Callable[[ObjectRef, Cause], None],
        namespaces: Sequence[str],
        watches: Sequence[Watch],
        *,
        states: ResourceStates,
        debouncer: Debouncer,
        records: RunStore,
        fields: WakeOnFields = NO_FIELDS,
        enabled: bool = True,
    ) -> None:
        """`stream` watches a kind in a namespace (None: all); `namespaces` restricts it.

        `records` get what runs write. The status of `watches` and the `fields` of `wakeOn` select
        what is kept of whole objects. Not `enabled`, nothing is watched: ansible-operator does so
        with --inject-owner-ref=false.
        """
        self._enabled = enabled
        self._stream = stream
        self._enqueue = enqueue
        self._states = states
        self._debouncer = debouncer
        self._records = records
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._objects: dict[ObjectRef, _Dependent] = {}
        self._watching: dict[GVK, list[asyncio.Task[None]]] = {}
        self._run_count = 0
        self._unowned: OrderedDict[ObjectRef, MetadataEvent] = OrderedDict()
        self._judging = {watch.gvk for watch in watches if watch.judges_dependents}
        self._pod_causes = PodCauses(stream, self._on_pod_cause)
        self._fields = fields
        self._wake_on = None if fields.is_empty else WakeOnChanges(fields, states)
        self.writes = OwnWrites(states)
        self.objects = DependentObjects(watches, states)
        self._keeps_objects = self.objects.is_used

    # Reports of the proxy ------------------------------------------------------------

    def on_dependent(
        self,
        owner: ObjectRef,
        dependent: ObjectRef,
        metadata: Json,
        watch: Watch,
        health: Health = _NO_HEALTH,
        *,
        body: Json | None = None,
        is_read: bool = True,
    ) -> None:
        """Record an object of `owner`, as it is in a response to the owner's run.

        See `proxy.response_tracker.ResponseObserver`.
        """
        if not self._enabled or not _is_watched(owner, dependent, watch):
            return
        entry = self._objects.setdefault(dependent, _Dependent())
        entry.owners.add(owner)
        self._of(owner).objects.add(dependent)
        if body is not None and self._keeps_objects:
            self.objects.on_response(owner, dependent, body)
        if body is not None and self._wake_on is not None:
            self._wake_on.on_response(owner, dependent, body)
        answered = metadata.get("resourceVersion", "")
        entry.fresh, entry.answered = not entry.has_shown(answered), answered
        self._judge(entry, dependent, answered, health)
        if is_read and health.behind is not None:
            entry.read_behind = health.behind
        if entry.version is None:
            # Later responses must not hide a change that the role may not have seen.
            entry.version, entry.readiness = Version.of(metadata), health.readiness
            entry.reason = health.reason
            if (missed := self._unowned.pop(dependent, None)) is not None:
                self._hold_or_process(dependent, entry, missed)
        self._note_readiness(entry, dependent)
        gvk, stream = dependent.gvk, self._stream
        if gvk not in self._watching:
            self._watching[gvk] = [
                asyncio.create_task(
                    watch_forever(stream, gvk, each, partial(self._take, each), "owned objects"),
                    name=f"watch {gvk}",
                )
                for each in (self._namespaces if dependent.namespace else (None,))
            ]

    def owners(self, dependent: ObjectRef) -> frozenset[ObjectRef]:
        """Return the resources that own an object, as far as is known."""
        entry = self._objects.get(dependent)
        return frozenset() if entry is None else frozenset(entry.owners)

    def by_owner(self) -> dict[ObjectRef, list[ObjectRef]]:
        """Return the objects of each resource, as far as they are known."""
        owners = self._states.slots(_OwnerSlot)
        return {owner: sorted(slot.objects, key=str) for owner, slot in owners if slot.objects}

    def _of(self, owner: ObjectRef) -> _OwnerSlot:
        return self._states.of(owner).slot(_OwnerSlot, owner, self._owner_ended)

    def _owner_ended(self, slot: _OwnerSlot) -> None:
        for ref in slot.waited_for or ():
            self._pod_causes.forget(ref)
        for ref in slot.objects:
            entry = self._objects[ref]
            entry.owners.discard(slot.owner)
            if not entry.owners:
                del self._objects[ref]

    def readiness(self, owner: ObjectRef, named: str = "") -> DependentsReadiness:
        """Return the readiness of the objects of a resource, for watches that show it.

        `named` is the kind and name of the object to report first.
        """
        slot = self._states.find(owner, _OwnerSlot)
        if slot is None or slot.waited_for is None:
            return DependentsReadiness()
        for ref, health in slot.waited_for.items():
            if health.behind and (entry := self._objects.get(ref)) is not None:
                entry.read_behind = True
        causes = {ref: self._with_pods(ref, health) for ref, health in slot.waited_for.items()}
        return readiness_of(causes, named)

    def catching_up(self, owner: ObjectRef) -> Awaitable[None] | None:
        """Return a wait until no status of the objects is older than its spec, a second at most.

        None if none is, or the watch does not show it. A status that is written after the wait
        needs no other run.
        """
        slot = self._states.find(owner, _OwnerSlot)
        return _wait_for_controllers(slot) if slot is not None and slot.is_behind else None

    def _with_pods(self, ref: ObjectRef, health: Health) -> Health:
        """Return the health of an object with the cause that its Pods have."""
        pod = None if health.reason == POD_REFUSED else self._pod_causes.of(ref)
        return health if pod is None else replace(health, reason=pod.reason, message=pod.message)

    def _on_pod_cause(self, workload: ObjectRef, reason: str) -> None:
        entry = self._objects.get(workload)
        for owner in entry.owners if entry is not None else ():
            if owner.gvk in self._judging:
                cause = Cause(Trigger.DEPENDENT, f"{workload} is not ready: {reason}", workload)
                self._debouncer.add(owner, cause, 0.0)

    def _judge(self, entry: _Dependent, ref: ObjectRef, version: str, health: Health) -> None:
        """Record the newest state of an object for owners whose status shows it."""
        if is_certainly_older(version, entry.newest):
            return
        entry.newest = version
        for owner in entry.owners:
            if owner.gvk in self._judging:
                slot = self._of(owner)
                slot.waited_for = {} if slot.waited_for is None else slot.waited_for
                if health.is_waited_for:
                    slot.waited_for[ref] = health
                    if health.behind is not True:
                        self._pod_causes.wait_for(ref)
                elif slot.waited_for.pop(ref, None) is not None:
                    self._pod_causes.forget(ref)
                if slot.caught_up is not None and not slot.is_behind:
                    slot.caught_up.set()

    def on_write(
        self, owner: ObjectRef, dependent: ObjectRef, resource_version: str, verb: str
    ) -> None:
        """Record a write of `owner`'s run, whose event must not cause a reconcile."""
        self._records.on_write(owner, dependent, verb)
        entry = self._objects.get(dependent)
        if entry is None or owner not in entry.owners:
            self.writes.record_foreign(owner, dependent, resource_version)
            return
        if verb == "delete":
            entry.deleted_by_run = True
            self._judge(entry, dependent, entry.newest, _NO_HEALTH)
            self.objects.deleted_by_run(dependent)
            return
        if entry.fresh or not entry.has_shown(resource_version):
            self.writes.record(owner, dependent)
            entry.rolling_out = True
        entry.fresh, entry.answered = False, resource_version
        entry.own_writes[resource_version] = None
        while len(entry.own_writes) > _OWN_WRITES:
            entry.own_writes.popitem(last=False)

    def changed(self, owner: ObjectRef, changes: Sequence[FieldChange]) -> None:
        """Record the fields that a run changed."""
        self.writes.changed(owner, changes)
        self._records.on_changes(owner, changes)

    def on_own_write(self, owner: ObjectRef, metadata: Json) -> None:
        """Record that a run wrote the resource that it reconciles."""
        self.writes.record_edit(owner, metadata)

    def newest(self, owner: ObjectRef, dependent: ObjectRef, watch: Watch) -> bytes | None:
        """Return an object of `owner` as it was seen last; see `ResponseObserver`."""
        known = self.objects.newest(owner, dependent)
        slot = self._states.find(owner, _OwnerSlot)
        is_new = slot is not None and slot.is_new
        if known is not None or not is_new or dependent in self._objects:
            return known
        return b"" if _is_watched(owner, dependent, watch) else None

    @contextmanager
    def hold_events(self, owner: ObjectRef, *, is_new: bool = False) -> Iterator[None]:
        """Defer the events of an owner during its run, until all its own writes are known.

        `is_new` is whether it has just been created, so that its objects should be missing.
        """
        slot = self._of(owner)
        slot.held, slot.is_new = [], is_new
        self._run_count += 1
        self.writes.begin(owner)
        if self._wake_on is not None:
            self._wake_on.run_started(owner)
        if (debounced := self._states.find(owner, Debounced)) is not None:
            debounced.drop_wait()  # The run that starts sees their objects.
        began = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            slot.run_seconds = asyncio.get_running_loop().time() - began
            held, slot.held, slot.is_new = slot.held, None, False
            self._run_count -= 1
            events = held or ()
            self._coalesce([each for ref, event in events for each in self._process(ref, event)])
            if not self._run_count:
                self._unowned.clear()

    def _coalesce(self, changes: Sequence[_StatusChange]) -> None:
        """Enqueue the owners now, or once the readiness of other objects has been calm."""
        groups: defaultdict[ObjectRef, list[_StatusChange]] = defaultdict(list)
        for each in changes:
            groups[each.owner].append(each)
        for owner, group in groups.items():
            slot = self._of(owner)
            can_wait = slot.unready and all(each.can_wait for each in group)
            calm = slot.run_seconds if can_wait else 0.0
            self._debouncer.add_group(owner, [each.cause for each in group], calm)

    def _note_readiness(self, entry: _Dependent, ref: ObjectRef) -> None:
        for owner in entry.owners:
            if entry.readiness is Readiness.NOT_READY:
                self._of(owner).unready.add(ref)
            else:
                self._of(owner).unready.discard(ref)

    async def stop(self) -> None:
        """End all watches."""
        self._debouncer.stop()
        await end_tasks(task for tasks in self._watching.values() for task in tasks)
        await self._pod_causes.stop()

    def extraction(self, gvk: GVK, *, has_status: bool) -> Extraction | None:
        """Return what a watch of a kind keeps beside metadata and health; None for nothing.

        `has_status` is whether the kind has a status subresource: Secrets and ConfigMaps have none.
        """
        if gvk == EVENT:
            return Extraction(refusal_of, whole=True, field_selector=f"reason={POD_REFUSED}")
        has_fields = self._fields.has_kind(gvk)
        if not has_fields and not (has_status and self._keeps_objects):
            return None
        return Extraction(self._extract, whole=True)

    def _extract(self, body: Json) -> ObjectExtract:
        gvk = GVK.of(body["apiVersion"], body["kind"])
        return ObjectExtract(self._fields.values(gvk, body), self.objects.content(body))

    # Events of the API server --------------------------------------------------------

    def _take(self, namespace: str | None, gvk: GVK, event: MetadataEvent) -> None:
        if event.type is EventType.SYNCED:
            self._find_missing(namespace, gvk, event.body)
            return
        ref = ObjectRef.of_kind(gvk, event.body)
        if event.type is EventType.DELETED:
            self._fields.deleted(ref)
        entry = self._objects.get(ref)
        if entry is None:
            self._keep_unclaimed(ref, event)
        else:
            self._hold_or_process(ref, entry, event)

    def _find_missing(self, namespace: str | None, gvk: GVK, listed: Json) -> None:
        """Process objects that a complete list lacks as deleted while there was no watch."""
        for ref, entry in list(self._objects.items()):
            is_of_list = ref.gvk == gvk and namespace in {None, ref.namespace}
            if (
                not is_of_list
                or entry.version is None
                or entry.version.uid in listed.get("uids", ())
            ):
                continue
            if entry.version.was_written_before(listed.get("resourceVersion", "")):
                names = {"name": ref.name, "namespace": ref.namespace, "uid": entry.version.uid}
                event = MetadataEvent(EventType.DELETED, {"metadata": names})
                self._fields.deleted(ref)
                self._hold_or_process(ref, entry, event)

    def _hold_or_process(self, ref: ObjectRef, entry: _Dependent, event: MetadataEvent) -> None:
        # A status that is evaluated at the end of a run has the newest objects.
        if self._keeps_objects:
            self.objects.on_event(ref, event)
        if event.health is not None:
            version = event.body["metadata"].get("resourceVersion", "")
            self._judge(entry, ref, version, event.health)
        lists = (self._of(owner).held for owner in entry.owners)
        held = next((each for each in lists if each is not None), None)
        if held is None:
            self._coalesce(self._process(ref, event))
        else:
            held.append((ref, event))

    def _keep_unclaimed(self, ref: ObjectRef, event: MetadataEvent) -> None:
        """Keep an event of an object that a run may have created, until the response arrives."""
        if not self._run_count:
            return
        self._unowned[ref] = event
        self._unowned.move_to_end(ref)
        if len(self._unowned) > _UNCLAIMED:
            self._unowned.popitem(last=False)

    def _process(self, ref: ObjectRef, event: MetadataEvent) -> Sequence[_StatusChange]:
        """Enqueue the owners for a change by others; return causes in the status, to coalesce."""
        entry = self._objects.get(ref)
        if entry is None:
            return ()
        if event.type is EventType.DELETED:
            own, entry.deleted_by_run = entry.deleted_by_run, False
            if entry.version is not None and entry.version.uid != event.body["metadata"].get("uid"):
                # Another object has this name now.
                return ()
            entry.version, entry.readiness, entry.read_behind = None, Readiness.UNKNOWN, False
            self._judge(entry, ref, entry.newest, _NO_HEALTH)
            self._note_readiness(entry, ref)
            if self._wake_on is not None:
                for owner in entry.owners:
                    self._wake_on.removed(owner, ref)
            self._wake(entry, ref, "" if own else "deleted")
            return ()
        new, old = Version.of(event.body["metadata"]), entry.version
        if old is not None and new.is_older_than(old):
            return ()
        entry.version = new
        if old is not None and new.resource_version not in entry.own_writes:
            self._wake(entry, ref, difference(old, new))
        return () if new.deleting else self._status_causes(entry, ref, event)

    def _wake(self, entry: _Dependent, ref: ObjectRef, what: str) -> None:
        """Enqueue the owners for a change of an object that they did not make themselves."""
        for owner in entry.owners if what else ():
            self._enqueue(owner, Cause(Trigger.DEPENDENT, f"{ref} {what}", ref))

    def _status_causes(
        self, entry: _Dependent, ref: ObjectRef, event: MetadataEvent
    ) -> list[_StatusChange]:
        """Return the owners for which readiness or chosen fields have changed, and the causes."""
        what, why, is_first = "", "", False
        if event.health is not None:
            what = entry.take(event.health)
            why = entry.new_reason(event.health)
            self._note_readiness(entry, ref)
            is_first = event.health.readiness is Readiness.READY and not entry.was_ready
        entry.was_ready = entry.was_ready or is_first
        # An object that becomes ready for the first time cannot be part of a loop.
        about = None if is_first else ref
        found = []
        for owner in entry.owners:
            fields = self._changed_fields(entry, owner, ref, event)
            reason = f"is not ready: {why}" if why and owner.gvk in self._judging else ""
            if text := ", ".join(filter(None, (fields, what or reason))):
                cause = Cause(Trigger.DEPENDENT, f"{ref} {text}", about)
                is_rollout = entry.rolling_out and what and entry.readiness is Readiness.NOT_READY
                can_wait = not fields and (is_rollout or entry.readiness is Readiness.READY)
                found.append(_StatusChange(owner, cause, bool(can_wait)))
        return found

    def _changed_fields(
        self, entry: _Dependent, owner: ObjectRef, ref: ObjectRef, event: MetadataEvent
    ) -> str:
        if self._wake_on is None or not isinstance(event.extracted, ObjectExtract):
            return ""
        version = event.body["metadata"].get("resourceVersion", "")
        own_write = version in entry.own_writes
        values = event.extracted.values
        return self._wake_on.change(owner, ref, version, values, own_write=own_write)


async def _wait_for_controllers(slot: _OwnerSlot) -> None:
    caught_up = slot.caught_up = asyncio.Event()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(caught_up.wait(), _CATCH_UP_SECONDS)
    finally:
        slot.caught_up = None


def _is_watched(owner: ObjectRef, dependent: ObjectRef, watch: Watch) -> bool:
    """Return whether changes of an object reconcile its owner.

    A cluster-scoped object cannot have an owner reference to a namespaced one: its annotations
    name the owner then, and it is watched only if the watch enables that.
    """
    if not watch.watch_dependent_resources or dependent.gvk in watch.blacklist:
        return False
    is_far = not dependent.namespace and bool(owner.namespace)
    return watch.watch_cluster_scoped_resources or not is_far
