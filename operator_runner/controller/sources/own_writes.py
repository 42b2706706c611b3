"""Record what the last run of each resource changed, to recognize echoes. Pure bookkeeping.

A request that changed nothing returns the previous resourceVersion of the object. The last seen
state of each primary resource is stored here too, within a memory limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from operator_runner.controller.predicates.primary_events import (
    SeenResource,
    annotations_state_key,
    spec_state_key,
)
from operator_runner.core.model import Cause, FieldChange, Json, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates

LIMIT = 16 * 1024**2
"""Bytes of compressed specs, some 10,000 resources; beyond it causes name generations only."""


class LastSeen:
    """The last seen state of each existing resource; the least recent specs are dropped first."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Keep at most `limit` bytes of specs."""
        self._limit = limit
        self._size = 0
        self._seen: OrderedDict[ObjectRef, SeenResource] = OrderedDict()

    def __iter__(self) -> Iterator[ObjectRef]:
        """Iterate over the existing resources."""
        return iter(list(self._seen))

    def get(self, ref: ObjectRef) -> SeenResource | None:
        """Return the last seen state of a resource, or None."""
        return self._seen.get(ref)

    def put(self, ref: ObjectRef, seen: SeenResource) -> None:
        """Store the state of a resource."""
        self.drop(ref)
        self._seen[ref] = seen
        self._size += len(seen.desired or b"")
        if self._size > self._limit:
            self._shrink()

    def drop(self, ref: ObjectRef) -> None:
        """Remove a deleted resource."""
        old = self._seen.pop(ref, None)
        if old is not None:
            self._size -= len(old.desired or b"")

    def _shrink(self) -> None:
        for ref, seen in self._seen.items():
            if seen.desired is not None:
                self._size -= len(seen.desired)
                self._seen[ref] = replace(seen, desired=None)
            if self._size <= self._limit:
                return


_MAX_STATE_KEYS = 16
"""States of a resource written by its own runs that are kept; a run writes one or two."""
_MAX_FIELDS = 32
"""Changed fields of one run that are kept until its end."""
_MAX_FOREIGN = 64
"""Objects that a resource does not own whose last version is kept for each resource."""


@dataclass(slots=True)
class _Writes:
    objects: set[ObjectRef] = field(default_factory=set)
    former: set[ObjectRef] = field(default_factory=set)
    """Objects of the last run that wrote any, if the current one has written none."""
    has_edited: bool = False
    state_keys: OrderedDict[str, None] = field(default_factory=OrderedDict)
    foreign: OrderedDict[ObjectRef, str] = field(default_factory=OrderedDict)
    fields: tuple[FieldChange, ...] = ()


class OwnWrites:
    """The objects that the last run of each resource wrote, and its edits of the resource."""

    def __init__(self, states: ResourceStates) -> None:
        """Keep them in `states`."""
        self._states = states

    def begin(self, owner: ObjectRef) -> None:
        """Forget the objects of the previous run; its state keys are kept for late events."""
        writes = self._of(owner)
        if writes.objects:
            writes.former = writes.objects
        writes.objects = set()
        writes.has_edited = False
        writes.fields = ()

    def record(self, owner: ObjectRef, written: ObjectRef) -> None:
        """Record that the current run changed an object."""
        self._of(owner).objects.add(written)

    def record_foreign(self, owner: ObjectRef, written: ObjectRef, version: str) -> None:
        """Record a write to an object that the resource does not own but may refer to.

        `version` is the resulting resourceVersion; an unchanged one means that nothing changed.
        """
        writes = self._of(owner)
        if not version or writes.foreign.get(written) != version:
            writes.objects.add(written)
        writes.foreign[written] = version
        writes.foreign.move_to_end(written)
        while len(writes.foreign) > _MAX_FOREIGN:
            writes.foreign.popitem(last=False)

    def changed(self, owner: ObjectRef, changes: Sequence[FieldChange]) -> None:
        """Record fields that the current run changed."""
        writes = self._of(owner)
        writes.fields = (*writes.fields, *changes)[:_MAX_FIELDS]

    def take_changes(self, owner: ObjectRef) -> tuple[FieldChange, ...]:
        """Return the fields that the last run changed, in order, and forget them."""
        writes = self._of(owner)
        changes, writes.fields = writes.fields, ()
        return changes

    def record_edit(self, owner: ObjectRef, metadata: Json) -> None:
        """Record that the run wrote its own resource, with the resulting metadata."""
        self._of(owner).has_edited = True
        state_keys = self._of(owner).state_keys
        for state_key in (spec_state_key(metadata), annotations_state_key(metadata)):
            state_keys[state_key] = None
        while len(state_keys) > _MAX_STATE_KEYS:
            state_keys.popitem(last=False)

    def is_echo(self, owner: ObjectRef, cause: Cause) -> bool:
        """Return whether a cause is about what the last run wrote, or a reaction to it."""
        writes = self._states.find(owner, _Writes)
        if writes is None:
            return False
        if cause.trigger in {Trigger.DEPENDENT, Trigger.REFERENCE, Trigger.TRIGGER}:
            return cause.about in writes.objects
        return bool(cause.state_key) and cause.state_key in writes.state_keys

    def is_recent_echo(self, owner: ObjectRef, cause: Cause) -> bool:
        """Return whether a cause is about what the last run that wrote anything wrote."""
        writes = self._states.find(owner, _Writes)
        if writes is None or writes.objects:
            return self.is_echo(owner, cause)
        return cause.about in writes.former or self.is_echo(owner, cause)

    def has_written(self, owner: ObjectRef) -> bool:
        """Return whether the last run wrote an object or its own resource."""
        writes = self._states.find(owner, _Writes)
        return writes is not None and (bool(writes.objects) or writes.has_edited)

    def own_version(self, owner: ObjectRef) -> str:
        """Return the resourceVersion of the last write of a run to its own resource.

        Empty if none is known. Writes of the status count.
        """
        writes = self._states.find(owner, _Writes)
        return "" if writes is None else writes.foreign.get(owner, "")

    def _of(self, owner: ObjectRef) -> _Writes:
        return self._states.of(owner).slot(_Writes)
