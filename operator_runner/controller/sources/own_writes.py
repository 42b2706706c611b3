"""Record what the last run of each resource changed, to recognize echoes. Pure bookkeeping.

A request that changed nothing returns the previous resourceVersion of the object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from operator_runner.controller.predicates.primary_events import (
    annotations_state_key,
    spec_state_key,
)
from operator_runner.core.model import Cause, FieldChange, Json, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates

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
