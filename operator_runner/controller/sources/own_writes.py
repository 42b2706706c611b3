"""What each resource's last run has really written, so that its echo is known. Bookkeeping.

A request that changed nothing is answered with the resourceVersion that the object had.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from operator_runner.controller.predicates.predicate import annotations_mark, spec_mark
from operator_runner.core.model import Cause, Json, ObjectRef, Trigger

_MARKS = 16
"""States of a resource that are known as its own run's work; a run makes one or two."""
_ELSEWHERE = 64
"""Objects of others whose last version by a run is remembered for each resource."""


@dataclass(slots=True)
class _Writes:
    objects: set[ObjectRef] = field(default_factory=set)
    marks: OrderedDict[str, None] = field(default_factory=OrderedDict)
    elsewhere: OrderedDict[ObjectRef, str] = field(default_factory=OrderedDict)


class OwnWrites:
    """The objects that the last run of each resource wrote, and its edits of the resource."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._writes: dict[ObjectRef, _Writes] = {}

    def begin(self, owner: ObjectRef) -> None:
        """Forget the objects of the run before; events of its edits may come late."""
        self._of(owner).objects.clear()

    def wrote(self, owner: ObjectRef, written: ObjectRef) -> None:
        """Take note that the run under way changed an object."""
        self._of(owner).objects.add(written)

    def wrote_elsewhere(self, owner: ObjectRef, written: ObjectRef, version: str) -> None:
        """Take note of a write to an object that the resource does not own but may refer to.

        `version` is the object's resourceVersion since; the same as before, and nothing changed.
        """
        writes = self._of(owner)
        if not version or writes.elsewhere.get(written) != version:
            writes.objects.add(written)
        writes.elsewhere[written] = version
        writes.elsewhere.move_to_end(written)
        while len(writes.elsewhere) > _ELSEWHERE:
            writes.elsewhere.popitem(last=False)

    def edited(self, owner: ObjectRef, metadata: Json) -> None:
        """Take note that the run wrote its own resource, whose metadata is this since."""
        marks = self._of(owner).marks
        for mark in (spec_mark(metadata), annotations_mark(metadata)):
            marks[mark] = None
        while len(marks) > _MARKS:
            marks.popitem(last=False)

    def is_echo(self, owner: ObjectRef, cause: Cause) -> bool:
        """Whether an event was of what the last run wrote, or somebody's answer to it."""
        writes = self._writes.get(owner)
        if writes is None:
            return False
        if cause.trigger in {Trigger.DEPENDENT, Trigger.REFERENCE}:
            return cause.about in writes.objects
        return bool(cause.mark) and cause.mark in writes.marks

    def forget(self, owner: ObjectRef) -> None:
        """Drop what is known of a resource that is gone."""
        self._writes.pop(owner, None)

    def _of(self, owner: ObjectRef) -> _Writes:
        return self._writes.setdefault(owner, _Writes())
