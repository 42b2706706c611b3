"""The fields of `wakeOn` in dependents, as the runs of their owners have seen them.

A run has seen the object of the first response with it: events up to its version change
nothing. Later responses of the same run hide nothing, because the role may have decided before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from operator_runner.controller.predicates.wake_on_fields import WakeOnFields, difference_of
from operator_runner.core.model import Json, ObjectRef, may_be_older


@dataclass(frozen=True, slots=True)
class _SeenFields:
    version: str
    values: Mapping[str, str]


class WakeOnChanges:
    """Compares the chosen fields of dependents with what their owners have seen."""

    def __init__(self, fields: WakeOnFields) -> None:
        """Take the fields by watch."""
        self._fields = fields
        self._seen: defaultdict[ObjectRef, dict[ObjectRef, _SeenFields]] = defaultdict(dict)
        self._read: dict[ObjectRef, set[ObjectRef]] = {}
        """Objects that the current run of each resource has seen."""

    def run_started(self, owner: ObjectRef) -> None:
        """Record that a run begins: the next response about each object is its first one."""
        self._read[owner] = set()

    def on_response(self, owner: ObjectRef, ref: ObjectRef, body: Json) -> None:
        """Record an object in a response to a run of `owner`."""
        if not self._fields.of(owner.gvk, ref.gvk):
            return
        read, seen = self._read.setdefault(owner, set()), self._seen[owner]
        if ref in read and ref in seen:
            return
        read.add(ref)
        version = str(body["metadata"].get("resourceVersion") or "")
        if ref not in seen or not may_be_older(version, seen[ref].version):
            seen[ref] = _SeenFields(version, self._fields.values(ref.gvk, body))

    def change(
        self,
        owner: ObjectRef,
        ref: ObjectRef,
        version: str,
        values: Mapping[str, str],
        *,
        own_write: bool,
    ) -> str:
        """Return what an event changes for `owner`, for display; empty if nothing has changed.

        `own_write` is whether a run of `owner` has made this version.
        """
        fields = self._fields.of(owner.gvk, ref.gvk)
        old = self._seen[owner].get(ref) if fields else None
        if not fields or (old is not None and not may_be_older(old.version, version)):
            return ""
        self._seen[owner][ref] = _SeenFields(version, values)
        return "" if old is None or own_write else difference_of(old.values, values, fields)

    def removed(self, owner: ObjectRef, ref: ObjectRef) -> None:
        """Drop an object of `owner` that was deleted."""
        self._seen[owner].pop(ref, None)

    def forget(self, owner: ObjectRef) -> None:
        """Drop the records of a deleted owner."""
        self._seen.pop(owner, None)
        self._read.pop(owner, None)
