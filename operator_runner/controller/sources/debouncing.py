"""Coalesce causes: enqueue the first at once, and those of the next second together.

Causes that may wait are enqueued once no further one has come for a while, or with the next cause
that may not. Ten Deployments that become ready one after the other make two runs instead of ten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from operator_runner.core.model import Cause, ObjectRef

_PAUSE_SECONDS = 1.0


@dataclass(slots=True)
class _Pause:
    """The pause after an owner was enqueued, and the causes that were added in it."""

    timer: asyncio.TimerHandle
    causes: dict[Cause, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Wait:
    """Causes that wait for further ones, at most until `end`, in seconds of the loop's clock."""

    timer: asyncio.TimerHandle
    end: float
    causes: dict[Cause, None] = field(default_factory=dict)


class Debouncer:
    """Enqueues causes in groups. Not thread-safe."""

    def __init__(self, enqueue: Callable[[ObjectRef, Cause], None], limit: float = 0.0) -> None:
        """`enqueue` is called for each cause, at once or later.

        `limit` is the time in seconds that causes wait at most for further ones.
        """
        self._enqueue = enqueue
        self._limit = limit
        self._pauses: dict[ObjectRef, _Pause] = {}
        self._waits: dict[ObjectRef, _Wait] = {}

    def add(self, owner: ObjectRef, cause: Cause, calm: float = 0.0) -> None:
        """Enqueue an owner for this cause; see `add_group`."""
        self.add_group(owner, [cause], calm)

    def add_group(self, owner: ObjectRef, causes: Collection[Cause], calm: float = 0.0) -> None:
        """Enqueue an owner for these causes together, now or after its pause.

        Before that, they wait until nothing has been added for `calm` seconds.
        """
        if causes and min(calm, self._limit) > 0:
            self._wait(owner, causes, calm)
            return
        if causes:
            causes = [*self._drop_wait(owner), *causes]
        if owner in self._pauses:
            self._pauses[owner].causes.update(dict.fromkeys(causes))
        elif causes:
            self._begin(owner)
            for cause in causes:
                self._enqueue(owner, cause)

    def forget(self, owner: ObjectRef) -> None:
        """Drop the waiting causes of a deleted owner."""
        self._drop_wait(owner)
        pause = self._pauses.pop(owner, None)
        if pause is not None:
            pause.timer.cancel()

    def stop(self) -> None:
        """Drop all waiting causes."""
        for owner in [*self._pauses, *self._waits]:
            self.forget(owner)

    def run_started(self, owner: ObjectRef) -> None:
        """Drop the causes that wait for further ones: the run that starts sees their objects."""
        self._drop_wait(owner)

    def _wait(self, owner: ObjectRef, causes: Collection[Cause], calm: float) -> None:
        loop = asyncio.get_running_loop()
        known = self._waits.get(owner)
        end = loop.time() + self._limit if known is None else known.end
        former = self._drop_wait(owner)
        timer = loop.call_at(min(loop.time() + calm, end), self._end_wait, owner)
        self._waits[owner] = _Wait(timer, end, dict.fromkeys([*former, *causes]))

    def _drop_wait(self, owner: ObjectRef) -> Collection[Cause]:
        wait = self._waits.pop(owner, None)
        if wait is None:
            return ()
        wait.timer.cancel()
        return wait.causes

    def _end_wait(self, owner: ObjectRef) -> None:
        self.add_group(owner, self._drop_wait(owner))

    def _begin(self, owner: ObjectRef) -> None:
        loop = asyncio.get_running_loop()
        self._pauses[owner] = _Pause(loop.call_later(_PAUSE_SECONDS, self._end, owner))

    def _end(self, owner: ObjectRef) -> None:
        pause = self._pauses.pop(owner)
        if pause.causes:
            self._begin(owner)
        for cause in pause.causes:
            self._enqueue(owner, cause)
