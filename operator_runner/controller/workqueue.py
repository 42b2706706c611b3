"""The work queue: deduplication, delays and backoff, with the rules of client-go's workqueue.

A key is never processed twice at once, and all causes that are added while it is processed lead to
one later run. `QueueState` is the pure part; `WorkQueue` waits for it on the event loop. The
`FairScheduler` chooses the next key among those that are ready, by cause, kind, namespace and age:

- Changes by users are processed before retries and resyncs.
- Among equally urgent keys the kind with the fewest runs is next.
- Keys of one kind and urgency are served round-robin by namespace, so that many resources in
  one namespace do not delay those of the others. Within a namespace the order is FIFO.
- The oldest key is overtaken a limited number of times in a row: a stream of urgent keys
  delays the others, but does not starve them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.settings import BackoffSettings, Concurrency
from operator_runner.telemetry.runs.api import QueueEntry

_log = structlog.get_logger(__name__)

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


_MAX_CAUSES = 16
"""Maximum causes kept per key, for display; the first cause of each trigger is always kept."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key to reconcile, with all causes since the last run and its waiting time in seconds."""

    key: ObjectRef
    causes: tuple[Cause, ...]
    waited: float
    replaced: tuple[float, Cause] | None = None
    """The delayed request that this run replaces, with its time; it is in force again if the run is
    deferred."""


@dataclass(slots=True)
class _KeyState:
    """The state of one key: ready while it has causes, delayed while it has `scheduled`."""

    causes: dict[Cause, None] = field(default_factory=dict)
    deferred: dict[Cause, None] = field(default_factory=dict)
    """Causes of deferred runs: the next run has them, whatever triggers it."""
    ready_since: float = 0.0
    scheduled: tuple[float, Cause] | None = None
    failures: int = 0
    processing: bool = False
    has_slot: bool = False
    """Whether it counts as a run."""


class QueueState:
    """The queue without a clock: methods take `now`, in seconds of any monotonic clock."""

    def __init__(self, concurrency: Concurrency, backoff: BackoffSettings) -> None:
        """Start empty, with the caps and delays given."""
        self._backoff = backoff
        self._entries: dict[ObjectRef, _KeyState] = {}
        self._scheduler = FairScheduler(concurrency)
        self._timers: list[tuple[float, int, ObjectRef]] = []  # (due, sequence, key)
        self._sequence = itertools.count()

    def add(self, key: ObjectRef, cause: Cause, now: float) -> None:
        """Request a reconcile of `key` as soon as caps and priorities allow it."""
        entry = self._entries.setdefault(key, _KeyState())
        if not entry.causes:
            entry.ready_since = now
        if len(entry.causes) < _MAX_CAUSES or all(c.trigger != cause.trigger for c in entry.causes):
            entry.causes[cause] = None
        if not entry.processing:
            self._scheduler.add(key, (cause,))

    def add_after(self, key: ObjectRef, cause: Cause, now: float, delay: float) -> None:
        """Request a reconcile in `delay` seconds, unless an earlier one is scheduled.

        Any run of the key in between replaces this one: it decides when the next one is due.
        """
        entry = self._entries.setdefault(key, _KeyState())
        due = now + delay
        if entry.scheduled is not None and entry.scheduled[0] <= due:
            return
        entry.scheduled = (due, cause)
        heapq.heappush(self._timers, (due, next(self._sequence), key))

    def defer(self, item: Item, now: float, delay: float) -> None:
        """Requeue an item for `delay` seconds later, or for when something else is added.

        The key is being processed until `done`.
        """
        self._entries[item.key].deferred.update(dict.fromkeys(item.causes))
        self.add_after(item.key, item.causes[0], now, delay)
        if item.replaced is not None:
            due, cause = item.replaced
            self.add_after(item.key, cause, now, due - now)

    def add_rate_limited(self, key: ObjectRef, now: float, first: float = 0.0) -> float:
        """Request a retry after the backoff of the key; return the delay in seconds.

        The backoff begins with `first` seconds, if this is more than that of the settings.
        """
        entry = self._entries.setdefault(key, _KeyState())
        first = max(first, self._backoff.first.total_seconds())
        limit = self._backoff.limit.total_seconds()
        # 2**60 exceeds any limit, and much larger exponents overflow.
        delay = min(first * 2.0 ** min(entry.failures, 60), limit)
        entry.failures += 1
        self.add_after(key, Cause(Trigger.RETRY, f"attempt {entry.failures + 1}"), now, delay)
        return delay

    def forget(self, key: ObjectRef) -> None:
        """Reset the backoff of a key."""
        if key in self._entries:
            self._entries[key].failures = 0

    def num_requeues(self, key: ObjectRef) -> int:
        """Return the number of consecutive failures of a key."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.failures

    def restore_failures(self, key: ObjectRef, failures: int) -> None:
        """Continue the backoff of a key, which is being processed, after so many failures."""
        entry = self._entries[key]
        entry.failures = max(entry.failures, failures)

    def get(self, now: float, is_memory_low: Callable[[], bool] = bool) -> Item | None:
        """Return the next item, whose key is being processed until `done`; None if none may run.

        `is_memory_low` returns whether there is too little memory for a further run.
        """
        self._add_due(now)
        key = self._scheduler.next()
        if key is None or (self._scheduler.run_count and is_memory_low()):
            return None
        self._scheduler.start(key)
        self._entries[key].has_slot = True
        return self._start(key, now)

    def free_slot(self, key: ObjectRef) -> None:
        """Let another key run although this one is being processed until `done`, if it is."""
        entry = self._entries.get(key)
        if entry is not None and entry.has_slot:
            entry.has_slot = False
            self._scheduler.finish(key)

    def get_again(self, key: ObjectRef, now: float) -> Item | None:
        """Return what was added for a key that is being processed; None if nothing was.

        The key is still being processed: its next run replaces the one that ended.
        """
        return self._start(key, now) if self._entries[key].causes else None

    def done(self, key: ObjectRef) -> None:
        """Mark a key as processed; causes that were added meanwhile may start a run now."""
        self.free_slot(key)
        entry = self._entries[key]
        entry.processing = False
        if entry.causes:
            self._scheduler.add(key, entry.causes)
        self._discard_if_idle(key)

    def remove(self, key: ObjectRef) -> None:
        """Remove a key whose resource was deleted.

        What is added during the run that finds it deleted stays: it may exist again.
        """
        if key in self._entries:
            entry = self._entries[key]
            entry.scheduled, entry.failures = None, 0
            if not entry.processing:
                entry.causes, entry.deferred = {}, {}
                self._scheduler.remove(key)
            self._discard_if_idle(key)

    def next_due(self) -> float | None:
        """Return the time at which the next delayed key becomes ready, or None."""
        while self._timers and not self._is_current(self._timers[0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def depth(self, gvk: GVK) -> int:
        """Return the number of queued keys of a kind."""
        return self._scheduler.depth(gvk)

    def snapshot(self, now: float) -> list[QueueEntry]:
        """Return all keys: those that run, then the queued ones in order, then the delayed ones."""
        positions = {key: number for number, key in enumerate(self._scheduler.order(), 1)}
        found = []
        for key, entry in self._entries.items():
            causes = tuple(entry.deferred | entry.causes)
            state, seconds = "Running", None
            if not entry.processing and entry.causes:
                state, seconds = "Queued", max(0.0, now - entry.ready_since)
            elif not entry.processing:
                if entry.scheduled is None:
                    continue
                due, cause = entry.scheduled
                state, seconds, causes = "Delayed", max(0.0, due - now), (cause,)
            position = positions.get(key)
            found.append(QueueEntry(key, state, causes, seconds, entry.failures, position))
        order = {"Running": 0, "Queued": 1, "Delayed": 2}
        return sorted(found, key=lambda e: (order[e.state], e.position or 0, e.seconds or 0.0))

    def _start(self, key: ObjectRef, now: float) -> Item:
        entry = self._entries[key]
        causes = tuple(entry.deferred | entry.causes)
        item = Item(key, causes, max(0.0, now - entry.ready_since), entry.scheduled)
        entry.causes, entry.deferred, entry.scheduled, entry.processing = {}, {}, None, True
        return item

    def _add_due(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._timers)
            entry = self._entries[key]
            assert entry.scheduled is not None
            cause, entry.scheduled = entry.scheduled[1], None
            self.add(key, cause, due)

    def _is_current(self, timer: tuple[float, int, ObjectRef]) -> bool:
        due, _, key = timer
        entry = self._entries.get(key)
        return entry is not None and entry.scheduled is not None and entry.scheduled[0] == due

    def _discard_if_idle(self, key: ObjectRef) -> None:
        entry = self._entries[key]
        if not (entry.processing or entry.causes or entry.scheduled or entry.failures):
            del self._entries[key]


class WorkQueue:
    """The backlog on the event loop's clock. Not thread-safe."""

    def __init__(
        self,
        concurrency: Concurrency,
        backoff: BackoffSettings,
        free_memory: Callable[[], int] | None = None,
        accepts: Callable[[ObjectRef], bool] | None = None,
    ) -> None:
        """Start empty. `free_memory` returns bytes; None disables the memory check.

        With shards, `add` and `add_after` ignore keys that are not accepted: they are of another
        replica.
        """
        self._accepts = accepts
        self._backlog = QueueState(concurrency, backoff)
        self._free_memory = free_memory
        self._run_memory = concurrency.run_memory
        self._memory_low = False
        self._changed = asyncio.Event()
        self._aside = asyncio.Lock()
        self._closed = False
        self._listeners: list[Callable[[ObjectRef, Cause], None]] = []

    def add_listener(self, listener: Callable[[ObjectRef, Cause], None]) -> None:
        """Call `listener` for each `add` until the queue is closed."""
        self._listeners.append(listener)

    def add(self, key: ObjectRef, cause: Cause) -> None:
        """Request a reconcile of `key` as soon as caps and priorities allow it."""
        if self._accepts is not None and not self._accepts(key):
            return
        self._backlog.add(key, cause, _now())
        self._changed.set()
        place = {"kind": key.gvk.kind, "namespace": key.namespace, "name": key.name}
        _log.debug("Queued", cause=str(cause), **place)
        for listener in () if self._closed else self._listeners:
            listener(key, cause)

    def add_after(self, key: ObjectRef, cause: Cause, delay: float) -> None:
        """Request a reconcile in `delay` seconds, unless an earlier one is scheduled."""
        if self._accepts is not None and not self._accepts(key):
            return
        self._backlog.add_after(key, cause, _now(), delay)
        self._changed.set()

    def defer(self, item: Item, delay: float) -> None:
        """Requeue an item for `delay` seconds later; see `QueueState.defer`."""
        self._backlog.defer(item, _now(), delay)
        self._changed.set()

    def add_rate_limited(self, key: ObjectRef, first: float = 0.0) -> float:
        """Request a retry after the backoff of the key; see `QueueState.add_rate_limited`."""
        delay = self._backlog.add_rate_limited(key, _now(), first)
        self._changed.set()
        return delay

    def forget(self, key: ObjectRef) -> None:
        """Reset the backoff of a key."""
        self._backlog.forget(key)

    def num_requeues(self, key: ObjectRef) -> int:
        """Return the number of consecutive failures of a key."""
        return self._backlog.num_requeues(key)

    def restore_failures(self, key: ObjectRef, failures: int) -> None:
        """Continue the backoff of a key; see `QueueState.restore_failures`."""
        self._backlog.restore_failures(key, failures)

    def remove(self, key: ObjectRef) -> None:
        """Remove a key whose resource was deleted; see `QueueState.remove`."""
        self._backlog.remove(key)

    def done(self, key: ObjectRef) -> None:
        """Mark a key as processed."""
        self._backlog.done(key)
        self._changed.set()

    def get_again(self, key: ObjectRef) -> Item | None:
        """Return what was added for a key that is being processed, to run it at once.

        None if nothing was, or the queue is closed: the caller then calls `done`.
        """
        return None if self._closed else self._backlog.get_again(key, _now())

    def free_slot(self, key: ObjectRef) -> None:
        """Let others run while the caller, who processes `key`, only waits."""
        self._backlog.free_slot(key)
        self._changed.set()

    @asynccontextmanager
    async def without_slot(self, key: ObjectRef) -> AsyncIterator[None]:
        """Let others run while the caller, who processes `key`, only reports on it.

        One key at a time is inside.
        """
        self.free_slot(key)
        async with self._aside:
            yield

    def depth(self, gvk: GVK) -> int:
        """Return the number of queued keys of a kind."""
        return self._backlog.depth(gvk)

    def snapshot(self) -> list[QueueEntry]:
        """Return all keys; see `QueueState.snapshot`."""
        return self._backlog.snapshot(_now())

    def close(self) -> None:
        """Shut the queue down: every waiting and later `get` returns None."""
        self._closed = True
        self._changed.set()

    async def get(self) -> Item | None:
        """Wait for the next item; None once the queue is closed. One caller at a time."""
        while not self._closed:
            item = self._backlog.get(_now(), self._is_memory_low)
            if item is not None:
                return item
            self._changed.clear()
            due = self._backlog.next_due()
            timeout = None if due is None else max(0.0, due - _now())
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def _is_memory_low(self) -> bool:
        """Return whether free memory is too low for a further run; log it when it becomes so."""
        free = self._free_memory() if self._free_memory is not None else self._run_memory
        was, self._memory_low = self._memory_low, free < self._run_memory
        if self._memory_low and not was:
            _log.warning(
                "Memory is low: further runs wait until others have ended",
                free_mb=free // 1024**2,
                needed_mb=self._run_memory // 1024**2,
            )
        return self._memory_low


def _now() -> float:
    return asyncio.get_running_loop().time()
