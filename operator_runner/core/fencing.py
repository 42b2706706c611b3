"""Fencing: a run may write only while this process holds the Lease that it held at its start.

Leader election extends a LeaseTerm, each reconcile takes a Fence from it, and each write takes a
WritePermit from the fence. Standard library only. See docs/adr/0034-fencing.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.durations import format_duration
from operator_runner.core.errors import Fenced
from operator_runner.core.model import ObjectRef

Epoch: TypeAlias = tuple[str, int]
"""The uid of a Lease and its leaseTransitions: the same as long as its holder does not change."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_T = TypeVar("_T")


def boot_time() -> float:
    """Return seconds of a monotonic clock that goes on while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Validity of a Lease after a renewal, in seconds."""

    duration: float
    """After this time another replica may acquire the Lease."""
    renew_deadline: float
    """After this time the holder gives up. The rest of the duration is the margin of writes."""

    def permits(self, age: float, limit: float = 0.0) -> bool:
        """Return whether a write may be sent, `age` seconds after the last renewal.

        `limit` is how long the API server may take to carry it out.
        """
        return age < self.renew_deadline and age + limit <= self.duration

    def limit(self, age: float) -> float:
        """Return the time limit of a write; half of the margin is for the way to the server."""
        return self.duration - age - (self.duration - self.renew_deadline) / 2


class LeaseTerm:
    """The time for which this process holds a Lease; each renewal extends it."""

    def __init__(
        self, lease: str, times: LeaseTimes, clock: Callable[[], float] = boot_time
    ) -> None:
        """`lease` is its namespace and name. It is not held yet."""
        self.lease = lease
        self.times = times
        self._clock = clock
        self._held: tuple[Epoch | None, float] = None, clock()
        """Epoch and last renewal in one, because a thread may renew the Lease."""

    @property
    def epoch(self) -> Epoch | None:
        """The present epoch; None while the Lease is not held."""
        return self._held[0]

    def now(self) -> float:
        """Return the time of the clock by which the term is measured, in seconds."""
        return self._clock()

    @property
    def age(self) -> float:
        """Seconds since the last renewal."""
        return self.now() - self._held[1]

    def extend(self, epoch: Epoch, sent: float) -> None:
        """Record an acquisition or a renewal; `sent` is the time before its request was sent."""
        self._held = epoch, sent

    def end(self) -> None:
        """Refuse all writes until the next acquisition, which begins an epoch of its own."""
        self._held = None, self._held[1]

    def age_in(self, epoch: Epoch | None) -> float | None:
        """Return seconds since the last renewal in an epoch; None if it has ended."""
        current, renewed = self._held
        return self.now() - renewed if epoch is not None and epoch == current else None


class Fence:
    """Permits the writes of one reconcile, until this process may have lost its Lease."""

    def __init__(self, term: LeaseTerm | None) -> None:
        """Bind the fence to the present epoch of `term`; None permits all writes."""
        self._term = term
        self._epoch = term.epoch if term is not None else None
        self._refused = asyncio.Event()

    def permit(self) -> WritePermit | None:
        """Return the permit for a write that is about to be sent; None: without a time limit.

        Raises Fenced.
        """
        self.check()
        if self._term is None:
            return None
        return WritePermit(self, self._term.times.limit(self._term.age))

    def check(self, limit: float = 0.0) -> None:
        """Raise Fenced unless a write may be sent now; once it has, it always does."""
        if self._term is None:
            return
        age = self._term.age_in(self._epoch)
        if self._refused.is_set() or age is None or not self._term.times.permits(age, limit):
            self._refused.set()
            raise Fenced(_message(self._term, age))

    async def guard(self, play: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of a run; cancel it as soon as one of its writes is refused.

        Raises Fenced then, and also if no more writes are permitted when the run has ended.
        """
        if self._term is None:
            return await play()
        playing = asyncio.create_task(play())
        refused = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait({playing, refused}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks([playing, refused])
        self.check()
        return playing.result()


@dataclass(frozen=True, slots=True)
class WritePermit:
    """The permission to send one write now."""

    fence: Fence
    limit: float
    """Seconds within which the API server has to carry it out."""

    @property
    def timeout(self) -> str:
        """The limit as the value of the parameter `timeout` of the Kubernetes API."""
        return format_duration(timedelta(milliseconds=int(self.limit * 1000)))

    def check(self) -> None:
        """Raise Fenced if the write may not be sent any more."""
        self.fence.check(self.limit)


UNFENCED = Fence(None)
"""Permits everything: without leader election nothing is fenced."""


class Fences:
    """The fences of resources: one for each reconcile, and else one of the present epoch."""

    def __init__(self, term_of: Callable[[ObjectRef], LeaseTerm | None] = lambda _: None) -> None:
        """`term_of` returns the term that covers a resource, None without leader election."""
        self._term_of = term_of
        self._current: dict[ObjectRef, Fence] = {}

    @contextmanager
    def reconciling(self, ref: ObjectRef) -> Iterator[Fence]:
        """Bind all writes for the resource inside the block to the present epoch."""
        fence = self._current[ref] = Fence(self._term_of(ref))
        try:
            yield fence
        finally:
            del self._current[ref]

    def of(self, ref: ObjectRef) -> Fence:
        """Return the fence of writes for the resource."""
        return self._current.get(ref) or Fence(self._term_of(ref))


def _message(term: LeaseTerm, age: float | None) -> str:
    """Return what was refused, why, and a hint; `age` is None if the epoch has ended."""
    times = term.times
    why = (
        "this process no longer holds it as it did when the run began"
        if age is None
        else f"it was last renewed {age:.1f} s ago, and may be held by another replica"
        f" {times.duration:g} s after a renewal"
    )
    return (
        f"write refused by leader election (Lease {term.lease}): {why}; the run is repeated by"
        " the replica that leads. If this recurs, give the operator more CPU, or increase"
        " --leader-elect-lease-duration and --leader-elect-renew-deadline"
    )
