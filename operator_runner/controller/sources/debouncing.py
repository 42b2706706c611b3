"""Coalesce causes: enqueue the first at once, and those of the next second together.

Causes that may wait are enqueued once no further one has come for a while, or with the next cause
that may not. Ten Deployments that become ready one after the other make two runs instead of ten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from operator_runner.core.model import Cause, ObjectRef
from operator_runner.core.resource_states import ResourceStates

_PAUSE_SECONDS = 1.0


@dataclass(slots=True)
class _Pause:
    """The pause after a resource was enqueued, and the causes that were added in it."""

    timer: asyncio.TimerHandle
    causes: dict[Cause, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Wait:
    """Causes that wait for further ones, at most until `end`, in seconds of the loop's clock."""

    timer: asyncio.TimerHandle
    end: float
    causes: dict[Cause, None] = field(default_factory=dict)


@dataclass(slots=True)
class Debounced:
    """The causes of one resource that are enqueued later."""

    pause: _Pause | None = None
    wait: _Wait | None = None

    def close(self) -> None:
        """See `SupportsClose`."""
        for each in (self.pause, self.wait):
            if each is not None:
                each.timer.cancel()
        self.pause = self.wait = None

    def drop_wait(self) -> Collection[Cause]:
        """Drop and return the causes that wait for further ones."""
        wait, self.wait = self.wait, None
        if wait is None:
            return ()
        wait.timer.cancel()
        return wait.causes


class Debouncer:
    """Enqueues causes in groups. Not thread-safe."""

    def __init__(
        self,
        states: ResourceStates,
        enqueue: Callable[[ObjectRef, Cause], None],
        limit: float = 0.0,
    ) -> None:
        """`enqueue` is called for each cause, at once or later.

        At once for resources without a state: nothing has been reconciled for them yet. `limit` is
        the time in seconds that causes wait at most for further ones.
        """
        self._states = states
        self._enqueue = enqueue
        self._limit = limit

    def add(self, owner: ObjectRef, cause: Cause, calm: float = 0.0) -> None:
        """Enqueue an owner for this cause; see `add_group`."""
        self.add_group(owner, [cause], calm)

    def add_group(self, owner: ObjectRef, causes: Collection[Cause], calm: float = 0.0) -> None:
        """Enqueue an owner for these causes together, now or after its pause.

        Before that, they wait until nothing has been added for `calm` seconds.
        """
        state = self._states.get(owner)
        if state is None:
            for cause in causes:
                self._enqueue(owner, cause)
            return
        known = state.slot(Debounced)
        if causes and min(calm, self._limit) > 0:
            self._wait(owner, known, causes, calm)
            return
        if causes:
            causes = [*known.drop_wait(), *causes]
        if known.pause is not None:
            known.pause.causes.update(dict.fromkeys(causes))
        elif causes:
            self._begin(owner, known)
            for cause in causes:
                self._enqueue(owner, cause)

    def stop(self) -> None:
        """Drop all waiting causes."""
        for _, known in self._states.slots(Debounced):
            known.close()

    def _wait(
        self, owner: ObjectRef, known: Debounced, causes: Collection[Cause], calm: float
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._limit if known.wait is None else known.wait.end
        former = known.drop_wait()
        timer = loop.call_at(min(loop.time() + calm, end), self._end_wait, owner, known)
        known.wait = _Wait(timer, end, dict.fromkeys([*former, *causes]))

    def _end_wait(self, owner: ObjectRef, known: Debounced) -> None:
        self.add_group(owner, known.drop_wait())

    def _begin(self, owner: ObjectRef, known: Debounced) -> None:
        timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._end, owner, known)
        known.pause = _Pause(timer)

    def _end(self, owner: ObjectRef, known: Debounced) -> None:
        causes = () if known.pause is None else known.pause.causes
        known.pause = None
        if causes:
            self._begin(owner, known)
        for cause in causes:
            self._enqueue(owner, cause)
