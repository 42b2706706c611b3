"""Store the last seen state of each primary resource, within a memory limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

from operator_runner.controller.predicates.primary_events import ResourceState
from operator_runner.core.model import ObjectRef

LIMIT = 16 * 1024**2
"""Bytes of compressed specs, some 10,000 resources; beyond it causes name generations only."""


class LastSeen:
    """The last seen state of each existing resource; the least recent specs are dropped first."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Keep at most `limit` bytes of specs."""
        self._limit = limit
        self._size = 0
        self._seen: OrderedDict[ObjectRef, ResourceState] = OrderedDict()

    def __iter__(self) -> Iterator[ObjectRef]:
        """Iterate over the existing resources."""
        return iter(list(self._seen))

    def get(self, ref: ObjectRef) -> ResourceState | None:
        """Return the last seen state of a resource, or None."""
        return self._seen.get(ref)

    def put(self, ref: ObjectRef, seen: ResourceState) -> None:
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
