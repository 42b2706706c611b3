"""Which resource is reconciled next: dedupe, delays, backoff, priorities and caps.

The rules are client-go's workqueue: a key is never worked on twice at once, and whatever
arrives for a key that is being worked on makes one later run. `Backlog` is the pure part;
`WorkQueue` waits for it on the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from operator_runner.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.settings import Backoff, Concurrency

# Lower runs first. What a person just did comes before what the operator owes itself.
_PRIORITY = {
    Trigger.DELETION: 0,
    Trigger.SPEC: 0,
    Trigger.ANNOTATION: 0,
    Trigger.DEPENDENT: 1,
    Trigger.PROJECT: 1,
    Trigger.REQUEUE: 1,
    Trigger.RETRY: 2,
    Trigger.PERIOD: 3,
    Trigger.START: 4,
}

_MAX_CAUSES = 16
"""More causes than these are not told apart: the list is for people."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key to reconcile, with all causes since the last run and how long it waited, in seconds."""

    key: ObjectRef
    causes: tuple[Cause, ...]
    waited: float


@dataclass(slots=True)
class _Entry:
    """What is known of one key; ready while it has causes, waiting while it has `later`."""

    causes: dict[Cause, None] = field(default_factory=dict)
    ready_since: float = 0.0
    turn: int = 0
    """Grows with each key that becomes ready, for those of the same moment."""
    later: tuple[float, Cause] | None = None
    failures: int = 0
    busy: bool = False

    @property
    def urgency(self) -> tuple[int, float, int]:
        """Sorts the most urgent first: by kind of cause, then by time of waiting."""
        priority = min(_PRIORITY[cause.trigger] for cause in self.causes)
        return priority, self.ready_since, self.turn


class Backlog:
    """The queue without a clock: every method takes `now`, in seconds of any steady clock."""

    def __init__(self, concurrency: Concurrency, backoff: Backoff) -> None:
        """Start empty, with the caps and delays given."""
        self._concurrency = concurrency
        self._backoff = backoff
        self._entries: dict[ObjectRef, _Entry] = {}
        self._ready: set[ObjectRef] = set()
        self._timers: list[tuple[float, int, ObjectRef]] = []  # (due, sequence, key)
        self._sequence = itertools.count()
        self._busy: Counter[GVK] = Counter()

    def add(self, key: ObjectRef, cause: Cause, now: float) -> None:
        """Ask for a reconcile of `key` as soon as its turn comes."""
        entry = self._entries.setdefault(key, _Entry())
        if not entry.causes:
            entry.ready_since, entry.turn = now, next(self._sequence)
            self._ready.add(key)
        if len(entry.causes) < _MAX_CAUSES:
            entry.causes[cause] = None

    def add_later(self, key: ObjectRef, cause: Cause, now: float, delay: float) -> None:
        """Ask for a reconcile in `delay` seconds, unless one comes before that anyway.

        Any run of the key in between takes the place of this one: the run itself decides
        anew when to come back.
        """
        entry = self._entries.setdefault(key, _Entry())
        due = now + delay
        if entry.causes or (entry.later is not None and entry.later[0] <= due):
            return
        entry.later = (due, cause)
        heapq.heappush(self._timers, (due, next(self._sequence), key))

    def retry(self, key: ObjectRef, now: float) -> float:
        """Ask for a reconcile after a failure; return the delay in seconds."""
        entry = self._entries.setdefault(key, _Entry())
        first, limit = self._backoff.first.total_seconds(), self._backoff.limit.total_seconds()
        # 2**60 is far beyond any limit, and much beyond it floats overflow.
        delay = min(first * 2.0 ** min(entry.failures, 60), limit)
        entry.failures += 1
        self.add_later(key, Cause(Trigger.RETRY, f"attempt {entry.failures + 1}"), now, delay)
        return delay

    def forget(self, key: ObjectRef) -> None:
        """Reset the backoff of a key that went well."""
        if key in self._entries:
            self._entries[key].failures = 0

    def take(self, now: float) -> Item | None:
        """Return the most urgent key that may run now and mark it as worked on, or None."""
        self._ring(now)
        if self._busy.total() >= self._concurrency.total:
            return None
        free = (key for key in self._ready if self._may_run(key))
        key = min(free, key=lambda key: self._entries[key].urgency, default=None)
        if key is None:
            return None
        self._ready.remove(key)
        entry = self._entries[key]
        item = Item(key, tuple(entry.causes), max(0.0, now - entry.ready_since))
        entry.causes, entry.later, entry.busy = {}, None, True
        self._busy[key.gvk] += 1
        return item

    def done(self, key: ObjectRef) -> None:
        """Say that the work on a taken key has ended; what arrived meanwhile may run now."""
        entry = self._entries[key]
        entry.busy = False
        self._busy[key.gvk] -= 1
        self._tidy(key)

    def drop(self, key: ObjectRef) -> None:
        """Forget a key whose resource is gone; a run under way goes on."""
        if key in self._entries:
            entry = self._entries[key]
            entry.causes, entry.later, entry.failures = {}, None, 0
            self._ready.discard(key)
            self._tidy(key)

    def next_due(self) -> float | None:
        """Return when the next delayed key becomes ready, or None."""
        while self._timers and not self._is_current(self._timers[0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def depth(self, gvk: GVK) -> int:
        """Return how many keys of a kind are ready and wait for their turn."""
        return sum(1 for key in self._ready if key.gvk == gvk)

    def _ring(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._timers)
            entry = self._entries[key]
            assert entry.later is not None
            cause, entry.later = entry.later[1], None
            self.add(key, cause, due)

    def _is_current(self, timer: tuple[float, int, ObjectRef]) -> bool:
        due, _, key = timer
        entry = self._entries.get(key)
        return entry is not None and entry.later is not None and entry.later[0] == due

    def _may_run(self, key: ObjectRef) -> bool:
        busy = self._busy[key.gvk]
        return not self._entries[key].busy and busy < self._concurrency.limit(key.gvk)

    def _tidy(self, key: ObjectRef) -> None:
        entry = self._entries[key]
        if not (entry.busy or entry.causes or entry.later or entry.failures):
            del self._entries[key]


class WorkQueue:
    """The backlog on the event loop's clock. One loop only; not for threads."""

    def __init__(self, concurrency: Concurrency, backoff: Backoff) -> None:
        """Start empty, with the caps and delays given."""
        self._backlog = Backlog(concurrency, backoff)
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, key: ObjectRef, cause: Cause) -> None:
        """Ask for a reconcile of `key` as soon as its turn comes."""
        self._backlog.add(key, cause, _now())
        self._changed.set()

    def add_later(self, key: ObjectRef, cause: Cause, delay: float) -> None:
        """Ask for a reconcile in `delay` seconds, unless one comes before that anyway."""
        self._backlog.add_later(key, cause, _now(), delay)
        self._changed.set()

    def retry(self, key: ObjectRef) -> float:
        """Ask for a reconcile after a failure; return the delay in seconds."""
        delay = self._backlog.retry(key, _now())
        self._changed.set()
        return delay

    def forget(self, key: ObjectRef) -> None:
        """Reset the backoff of a key that went well."""
        self._backlog.forget(key)

    def drop(self, key: ObjectRef) -> None:
        """Forget a key whose resource is gone."""
        self._backlog.drop(key)

    def done(self, key: ObjectRef) -> None:
        """Say that the work on a taken key has ended."""
        self._backlog.done(key)
        self._changed.set()

    def depth(self, gvk: GVK) -> int:
        """Return how many keys of a kind wait for their turn."""
        return self._backlog.depth(gvk)

    def close(self) -> None:
        """Give out no more keys: every waiting and later `take` returns None."""
        self._closed = True
        self._changed.set()

    async def take(self) -> Item | None:
        """Wait for the next key to reconcile; None once the queue is closed.

        One caller at a time: the dispatcher.
        """
        while not self._closed:
            item = self._backlog.take(_now())
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


def describe(causes: Iterable[Cause]) -> str:
    """Write causes for people: `spec: generation 3; dependent: Deployment default/web deleted`."""
    return "; ".join(str(cause) for cause in causes)


def _now() -> float:
    return asyncio.get_running_loop().time()
