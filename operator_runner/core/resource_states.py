"""What this process knows of each resource: one state, which ends with the resource.

A part that keeps something of a resource has a slot in its state. So deletion, re-creation under
the same name and moving to another replica are one `pop`; see ADR 80.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from operator_runner.core.model import ObjectRef

_T = TypeVar("_T")


@runtime_checkable
class SupportsClose(Protocol):
    """A slot that holds something beside its values: timers, or its place in an index."""

    def close(self) -> None:
        """Release it: the state has ended."""


@dataclass(slots=True)
class ResourceState:
    """What this process knows of one resource; of a new resource with its name it knows nothing."""

    ref: ObjectRef
    uid: str = ""
    generation: int = 0
    """As it was read last."""
    succeeded: int | None = None
    """Generation of the last run if that succeeded."""
    is_unapplied: bool = False
    """Whether there was a change, or a run that did not succeed: retries have no other causes."""
    is_failing: bool = False
    """Whether the last run failed; without conditions, only this shows it."""
    superseded: int = 0
    """Runs that were superseded, one after the other."""
    awaits_edit: bool = False
    """Whether only an edit of the project helps, so that no retry is due."""
    failing_since: float | None = None
    """When its reconciles began to fail, in seconds of a monotonic clock; None if they do not."""
    is_suspended: bool = False
    is_idempotent: bool = True
    """Whether its role does not change the same field in every run."""
    is_drifted: bool = False
    """Whether its objects differ from what it asks for, and `drift` of its watch reports that."""
    _slots: dict[type, Any] = field(default_factory=dict)

    def slot(self, kind: type[_T], *args: Any) -> _T:
        """Return what a part keeps of the resource: its only object of this class.

        The first call makes it, with `args`.
        """
        found = self._slots.get(kind)
        if found is None:
            found = self._slots[kind] = kind(*args)
        return cast("_T", found)

    def find(self, kind: type[_T]) -> _T | None:
        """Return the slot of this class, None if there is none."""
        return self._slots.get(kind)

    def kinds(self) -> Collection[type]:
        """Return the classes of the slots."""
        return self._slots.keys()

    def drop(self, kind: type) -> None:
        """Drop the slot of this class, without closing it."""
        self._slots.pop(kind, None)

    def close(self) -> None:
        """Close all slots."""
        for slot in self._slots.values():
            if isinstance(slot, SupportsClose):
                slot.close()


class ResourceStates:
    """The states of all resources that this process has reconciled or given access to its runs."""

    def __init__(self) -> None:
        """Start empty."""
        self._states: dict[ObjectRef, ResourceState] = {}

    def __iter__(self) -> Iterator[ResourceState]:
        """Iterate over the states; others may be added and removed meanwhile."""
        return iter(tuple(self._states.values()))

    def of(self, ref: ObjectRef) -> ResourceState:
        """Return the state of a resource, a new one if there is none."""
        found = self._states.get(ref)
        if found is None:
            found = self._states[ref] = ResourceState(ref)
        return found

    def get(self, ref: ObjectRef) -> ResourceState | None:
        """Return the state of a resource, None if there is none."""
        return self._states.get(ref)

    def find(self, ref: ObjectRef, kind: type[_T]) -> _T | None:
        """Return the slot of this class of a resource, None if there is none."""
        state = self._states.get(ref)
        return None if state is None else state.find(kind)

    def slots(self, kind: type[_T]) -> Iterator[tuple[ObjectRef, _T]]:
        """Yield the slots of this class with their resources."""
        for state in self:
            if (slot := state.find(kind)) is not None:
                yield state.ref, slot

    def pop(self, ref: ObjectRef) -> None:
        """End the state of a resource: it is deleted, or another replica reconciles it."""
        if (state := self._states.pop(ref, None)) is not None:
            state.close()
