"""Remembers each primary resource as its last event showed it, within a bound of memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

from operator_runner.controller.predicates.predicate import Seen
from operator_runner.core.model import ObjectRef

LIMIT = 16 * 1024**2
"""Bytes of packed specs: some ten thousand resources. Beyond it changes are told by generation."""


class LastSeen:
    """What was last seen of each resource that exists; the specs of the longest unseen go first."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Keep at most `limit` bytes of specs."""
        self._limit = limit
        self._size = 0
        self._seen: OrderedDict[ObjectRef, Seen] = OrderedDict()

    def __iter__(self) -> Iterator[ObjectRef]:
        """Go through the resources that exist."""
        return iter(list(self._seen))

    def get(self, ref: ObjectRef) -> Seen | None:
        """Return what was last seen of a resource, None for one that was never seen."""
        return self._seen.get(ref)

    def put(self, ref: ObjectRef, seen: Seen) -> None:
        """Remember a resource as it is now."""
        self.drop(ref)
        self._seen[ref] = seen
        self._size += len(seen.asked or b"")
        if self._size > self._limit:
            self._shrink()

    def drop(self, ref: ObjectRef) -> None:
        """Forget a resource that is gone."""
        old = self._seen.pop(ref, None)
        if old is not None:
            self._size -= len(old.asked or b"")

    def _shrink(self) -> None:
        for ref, seen in self._seen.items():
            if seen.asked is not None:
                self._size -= len(seen.asked)
                self._seen[ref] = replace(seen, asked=None)
            if self._size <= self._limit:
                return
