"""Whose turn it is among the keys that are ready: by cause, by kind, by age. Pure.

- What a person just did comes before what the operator owes itself.
- Among equally urgent keys the kinds take turns, the one with the fewest runs first.
- Among keys of one kind and urgency the namespaces take turns, so that many resources in one
  namespace do not delay those of the others. Within a namespace keys run in the order in
  which they came.
- Who came first is overtaken a few times in a row, then it is its turn: a stream of urgent
  keys delays the others, but never for ever.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.settings import Concurrency

_URGENCY = {
    Trigger.DELETION: 0,
    Trigger.SPEC: 0,
    Trigger.ANNOTATION: 0,
    Trigger.DEPENDENT: 1,
    Trigger.REFERENCE: 1,
    Trigger.PROJECT: 1,
    Trigger.REQUEUE: 1,
    Trigger.RETRY: 2,
    Trigger.PERIOD: 3,
    Trigger.START: 4,
}
"""Lower runs first."""

_PATIENCE = 8
"""Times that more urgent keys may overtake a line whose first key waits longer than they do."""


@dataclass(slots=True)
class _Line:
    """The keys of one kind and urgency, in the order in which they came, each with its number."""

    urgency: int
    gvk: GVK
    keys: dict[ObjectRef, int] = field(default_factory=dict)
    namespaces: dict[str, dict[ObjectRef, None]] = field(default_factory=dict)
    """The same keys by namespace; the namespace that was served least recently comes first."""
    overtaken: int = 0

    @property
    def age(self) -> int:
        """Number of the oldest key; the lowest came first of all."""
        return next(iter(self.keys.values()))

    def first(self) -> ObjectRef:
        """Return the oldest key of the namespace that is served next."""
        return next(iter(next(iter(self.namespaces.values()))))

    def add(self, key: ObjectRef, number: int) -> None:
        """Append a key; its namespace is served after those that wait already."""
        self.keys[key] = number
        self.namespaces.setdefault(key.namespace, {})[key] = None

    def remove(self, key: ObjectRef) -> None:
        """Drop a key; its namespace keeps its place."""
        del self.keys[key]
        keys = self.namespaces[key.namespace]
        del keys[key]
        if not keys:
            del self.namespaces[key.namespace]

    def rotate(self, namespace: str) -> None:
        """Serve all other namespaces before this one again."""
        if namespace in self.namespaces:
            self.namespaces[namespace] = self.namespaces.pop(namespace)


class Turns:
    """Keys that are ready, and how many runs of each kind are under way."""

    def __init__(self, concurrency: Concurrency) -> None:
        """Start empty, with the caps given."""
        self._concurrency = concurrency
        self._lines: dict[tuple[int, GVK], _Line] = {}
        self._line_of: dict[ObjectRef, _Line] = {}
        self._numbers = itertools.count()
        self._busy: Counter[GVK] = Counter()
        self._served: dict[GVK, int] = {}

    @property
    def under_way(self) -> int:
        """The number of runs under way."""
        return self._busy.total()

    def join(self, key: ObjectRef, causes: Iterable[Cause]) -> None:
        """Let a key wait for its turn; one that waits already moves up if it is more urgent now."""
        urgency = min(_URGENCY[cause.trigger] for cause in causes)
        current = self._line_of.get(key)
        if current is not None and current.urgency <= urgency:
            return
        self.leave(key)
        line = self._lines.setdefault((urgency, key.gvk), _Line(urgency, key.gvk))
        line.add(key, next(self._numbers))
        self._line_of[key] = line

    def leave(self, key: ObjectRef) -> None:
        """Forget a key that waits, if it does."""
        line = self._line_of.pop(key, None)
        if line is not None:
            line.remove(key)

    def next(self) -> ObjectRef | None:
        """Return the key whose turn it is if there is room for a run of it, or None."""
        lines = [line for line in self._lines.values() if line.keys and self._has_room(line.gvk)]
        line = min(lines, key=self._rank, default=None)
        return line.first() if line is not None else None

    def start(self, key: ObjectRef) -> None:
        """Take the key that `next` gave out of its line, and count its run."""
        line = self._line_of[key]
        for other in self._lines.values():
            if other.keys and other.urgency > line.urgency and other.age < line.keys[key]:
                other.overtaken += self._has_room(other.gvk)
        line.overtaken = 0
        self.leave(key)
        line.rotate(key.namespace)
        self._busy[key.gvk] += 1
        self._served[key.gvk] = next(self._numbers)

    def end(self, key: ObjectRef) -> None:
        """Count the end of a key's run."""
        self._busy[key.gvk] -= 1

    def depth(self, gvk: GVK) -> int:
        """Return how many keys of a kind wait for their turn."""
        return sum(len(line.keys) for line in self._lines.values() if line.gvk == gvk)

    def _rank(self, line: _Line) -> tuple[int, int, int, int]:
        """Sort the line first whose turn it is."""
        if line.overtaken >= _PATIENCE:
            return -1, line.age, 0, 0
        return line.urgency, self._busy[line.gvk], self._served.get(line.gvk, -1), line.age

    def _has_room(self, gvk: GVK) -> bool:
        busy, caps = self._busy[gvk], self._concurrency
        room = caps.total if busy else caps.total + caps.extra
        return self.under_way < room and busy < caps.limit(gvk)
