"""Choose the next key among those that are ready: by cause, kind, namespace and age. Pure.

- Changes by users are processed before retries and resyncs.
- Among equally urgent keys the kind with the fewest runs is next.
- Keys of one kind and urgency are served round-robin by namespace, so that many resources in
  one namespace do not delay those of the others. Within a namespace the order is FIFO.
- The oldest key is overtaken a limited number of times in a row: a stream of urgent keys
  delays the others, but does not starve them.
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
    Trigger.TRIGGER: 1,
    Trigger.PROJECT: 1,
    Trigger.REQUEUE: 1,
    Trigger.SCHEDULE: 1,
    Trigger.RETRY: 2,
    Trigger.PERIOD: 3,
    Trigger.START: 4,
}
"""Priority by trigger; lower runs first."""

_MAX_OVERTAKES = 8
"""Times that more urgent keys may overtake a lane whose first key has waited longer."""


@dataclass(slots=True)
class _Lane:
    """The keys of one kind and urgency in FIFO order, each with its sequence number."""

    urgency: int
    gvk: GVK
    keys: dict[ObjectRef, int] = field(default_factory=dict)
    namespaces: dict[str, dict[ObjectRef, None]] = field(default_factory=dict)
    """The same keys by namespace; the least recently served namespace is the first."""
    overtaken: int = 0

    @property
    def age(self) -> int:
        """Sequence number of the oldest key; a lower one is older."""
        return next(iter(self.keys.values()))

    def first(self) -> ObjectRef:
        """Return the oldest key of the next namespace."""
        return next(iter(next(iter(self.namespaces.values()))))

    def order(self) -> list[ObjectRef]:
        """Return the keys in the order in which they are served."""
        rounds = itertools.zip_longest(*self.namespaces.values())
        return [key for each in rounds for key in each if key is not None]

    def add(self, key: ObjectRef, number: int) -> None:
        """Append a key; a new namespace is served after those that wait already."""
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


class FairScheduler:
    """Keys that are ready, and the number of runs in progress by kind."""

    def __init__(self, concurrency: Concurrency) -> None:
        """Start empty, with the caps given."""
        self._concurrency = concurrency
        self._lanes: dict[tuple[int, GVK], _Lane] = {}
        self._lane_of: dict[ObjectRef, _Lane] = {}
        self._numbers = itertools.count()
        self._running: Counter[GVK] = Counter()
        self._served: dict[GVK, int] = {}

    @property
    def run_count(self) -> int:
        """The number of runs in progress."""
        return self._running.total()

    def add(self, key: ObjectRef, causes: Iterable[Cause]) -> None:
        """Queue a key; one that is queued already moves up if it is more urgent now."""
        urgency = min(_URGENCY[cause.trigger] for cause in causes)
        current = self._lane_of.get(key)
        if current is not None and current.urgency <= urgency:
            return
        self.remove(key)
        lane = self._lanes.setdefault((urgency, key.gvk), _Lane(urgency, key.gvk))
        lane.add(key, next(self._numbers))
        self._lane_of[key] = lane

    def remove(self, key: ObjectRef) -> None:
        """Remove a key if it is queued."""
        lane = self._lane_of.pop(key, None)
        if lane is not None:
            lane.remove(key)

    def next(self) -> ObjectRef | None:
        """Return the next key that the caps allow to run, or None."""
        lanes = [lane for lane in self._lanes.values() if lane.keys and self._has_room(lane.gvk)]
        lane = min(lanes, key=self._rank, default=None)
        return lane.first() if lane is not None else None

    def start(self, key: ObjectRef) -> None:
        """Dequeue the key that `next` returned, and count its run."""
        lane = self._lane_of[key]
        for other in self._lanes.values():
            if other.keys and other.urgency > lane.urgency and other.age < lane.keys[key]:
                other.overtaken += self._has_room(other.gvk)
        lane.overtaken = 0
        self.remove(key)
        lane.rotate(key.namespace)
        self._running[key.gvk] += 1
        self._served[key.gvk] = next(self._numbers)

    def finish(self, key: ObjectRef) -> None:
        """Count the end of a key's run."""
        self._running[key.gvk] -= 1

    def depth(self, gvk: GVK) -> int:
        """Return the number of queued keys of a kind."""
        return sum(len(lane.keys) for lane in self._lanes.values() if lane.gvk == gvk)

    def order(self) -> list[ObjectRef]:
        """Return the queued keys in about the order in which they will run.

        Keys that are added later, and runs that end, may change it.
        """
        lanes = sorted((lane for lane in self._lanes.values() if lane.keys), key=self._rank)
        return [key for lane in lanes for key in lane.order()]

    def _rank(self, lane: _Lane) -> tuple[int, int, int, int]:
        """Return the sort key of a lane; the lowest is served next."""
        if lane.overtaken >= _MAX_OVERTAKES:
            return -1, lane.age, 0, 0
        return lane.urgency, self._running[lane.gvk], self._served.get(lane.gvk, -1), lane.age

    def _has_room(self, gvk: GVK) -> bool:
        busy, caps = self._running[gvk], self._concurrency
        room = caps.total if busy else caps.total + caps.extra
        return self.run_count < room and busy < caps.limit(gvk)
