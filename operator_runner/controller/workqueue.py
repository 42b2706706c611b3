"""Which resource is reconciled next, and when: dedupe, delays, backoff.

The rules are client-go's workqueue: a key is never worked on twice at once, and whatever
arrives for a key that is being worked on makes one later run. Priorities and caps are those of
`turns`. `Backlog` is the pure part; `WorkQueue` waits for it on the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from operator_runner.controller.fair_queue import Turns
from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.core.settings import Backoff, Concurrency

_log = structlog.get_logger(__name__)

_MAX_CAUSES = 16
"""More causes than these are not told apart, for the list is for people; but every trigger is."""


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
    held: dict[Cause, None] = field(default_factory=dict)
    """Causes that were put off: the next run has them, whatever leads to it."""
    ready_since: float = 0.0
    later: tuple[float, Cause] | None = None
    failures: int = 0
    busy: bool = False


class Backlog:
    """The queue without a clock: every method takes `now`, in seconds of any steady clock."""

    def __init__(self, concurrency: Concurrency, backoff: Backoff) -> None:
        """Start empty, with the caps and delays given."""
        self._backoff = backoff
        self._entries: dict[ObjectRef, _Entry] = {}
        self._turns = Turns(concurrency)
        self._timers: list[tuple[float, int, ObjectRef]] = []  # (due, sequence, key)
        self._sequence = itertools.count()

    def add(self, key: ObjectRef, cause: Cause, now: float) -> None:
        """Ask for a reconcile of `key` as soon as its turn comes."""
        entry = self._entries.setdefault(key, _Entry())
        if not entry.causes:
            entry.ready_since = now
        if len(entry.causes) < _MAX_CAUSES or all(c.trigger != cause.trigger for c in entry.causes):
            entry.causes[cause] = None
        if not entry.busy:
            self._turns.join(key, (cause,))

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

    def hold(self, item: Item, now: float, delay: float) -> None:
        """Put a key that was taken off for `delay` seconds; what arrives meanwhile takes it anew.

        The work on the key goes on until `done`.
        """
        self._entries[item.key].held.update(dict.fromkeys(item.causes))
        self.add_later(item.key, item.causes[0], now, delay)

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

    def take(self, now: float, short: Callable[[], bool] = bool) -> Item | None:
        """Return the key whose turn it is and mark it as worked on, or None.

        `short` is asked whether there is no memory for a run beside those under way.
        """
        self._ring(now)
        key = self._turns.next()
        if key is None or (self._turns.under_way and short()):
            return None
        self._turns.start(key)
        return self._begin(key, now)

    def take_again(self, key: ObjectRef, now: float) -> Item | None:
        """Return what has arrived for a key that is worked on, for its next run; None if nothing.

        The key goes on being worked on: its next run takes the place of the one that ended.
        """
        return self._begin(key, now) if self._entries[key].causes else None

    def done(self, key: ObjectRef) -> None:
        """Say that the work on a taken key has ended; what arrived meanwhile may run now."""
        entry = self._entries[key]
        entry.busy = False
        self._turns.end(key)
        if entry.causes:
            self._turns.join(key, entry.causes)
        self._tidy(key)

    def drop(self, key: ObjectRef) -> None:
        """Forget a key whose resource is gone.

        What arrives during the run that finds it gone stays: it may have been made anew.
        """
        if key in self._entries:
            entry = self._entries[key]
            entry.later, entry.failures = None, 0
            if not entry.busy:
                entry.causes, entry.held = {}, {}
                self._turns.leave(key)
            self._tidy(key)

    def next_due(self) -> float | None:
        """Return when the next delayed key becomes ready, or None."""
        while self._timers and not self._is_current(self._timers[0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def depth(self, gvk: GVK) -> int:
        """Return how many keys of a kind wait for their turn."""
        return self._turns.depth(gvk)

    def _begin(self, key: ObjectRef, now: float) -> Item:
        entry = self._entries[key]
        causes = tuple(entry.held | entry.causes)
        item = Item(key, causes, max(0.0, now - entry.ready_since))
        entry.causes, entry.held, entry.later, entry.busy = {}, {}, None, True
        return item

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

    def _tidy(self, key: ObjectRef) -> None:
        entry = self._entries[key]
        if not (entry.busy or entry.causes or entry.later or entry.failures):
            del self._entries[key]


class WorkQueue:
    """The backlog on the event loop's clock. One loop only; not for threads."""

    def __init__(
        self,
        concurrency: Concurrency,
        backoff: Backoff,
        free_memory: Callable[[], int] | None = None,
    ) -> None:
        """Start empty. `free_memory` gives bytes; None: memory is not looked at."""
        self._backlog = Backlog(concurrency, backoff)
        self._free_memory = free_memory
        self._run_memory = concurrency.run_memory
        self._short = False
        self._changed = asyncio.Event()
        self._closed = False
        self._listeners: list[Callable[[ObjectRef, Cause], None]] = []

    def listen(self, listener: Callable[[ObjectRef, Cause], None]) -> None:
        """Have `listener` called with what is added while the queue gives out keys."""
        self._listeners.append(listener)

    def add(self, key: ObjectRef, cause: Cause) -> None:
        """Ask for a reconcile of `key` as soon as its turn comes."""
        self._backlog.add(key, cause, _now())
        self._changed.set()
        place = {"kind": key.gvk.kind, "namespace": key.namespace, "name": key.name}
        _log.debug("Queued", cause=str(cause), **place)
        for listener in () if self._closed else self._listeners:
            listener(key, cause)

    def add_later(self, key: ObjectRef, cause: Cause, delay: float) -> None:
        """Ask for a reconcile in `delay` seconds, unless one comes before that anyway."""
        self._backlog.add_later(key, cause, _now(), delay)
        self._changed.set()

    def hold(self, item: Item, delay: float) -> None:
        """Put a key that was taken off for `delay` seconds; see `Backlog.hold`."""
        self._backlog.hold(item, _now(), delay)
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

    def take_again(self, key: ObjectRef) -> Item | None:
        """Return what has arrived for a key that is worked on, for its next run at once.

        None if nothing has, or the queue is closed: the work on the key is to end.
        """
        return None if self._closed else self._backlog.take_again(key, _now())

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
            item = self._backlog.take(_now(), self._is_short)
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

    def _is_short(self) -> bool:
        """Whether no further run fits into the memory that is free now; said once each time."""
        free = self._free_memory() if self._free_memory is not None else self._run_memory
        was, self._short = self._short, free < self._run_memory
        if self._short and not was:
            _log.warning(
                "Short of memory: further runs wait until others have ended",
                free_mb=free // 1024**2,
                needed_mb=self._run_memory // 1024**2,
            )
        return self._short


def _now() -> float:
    return asyncio.get_running_loop().time()
