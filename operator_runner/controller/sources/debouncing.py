"""Coalesce causes: enqueue the first at once, and those of the next second together.

Ten Deployments that become ready one after the other make two runs instead of ten.
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


class Debouncer:
    """Enqueues causes in groups. Not thread-safe."""

    def __init__(self, enqueue: Callable[[ObjectRef, Cause], None]) -> None:
        """`enqueue` is called for each cause, at once or after the pause."""
        self._enqueue = enqueue
        self._pauses: dict[ObjectRef, _Pause] = {}

    def add(self, owner: ObjectRef, cause: Cause) -> None:
        """Enqueue an owner for this cause, now or after its pause."""
        self.add_group(owner, [cause])

    def add_group(self, owner: ObjectRef, causes: Collection[Cause]) -> None:
        """Enqueue an owner for these causes together, now or after its pause."""
        if owner in self._pauses:
            self._pauses[owner].causes.update(dict.fromkeys(causes))
        elif causes:
            self._begin(owner)
            for cause in causes:
                self._enqueue(owner, cause)

    def forget(self, owner: ObjectRef) -> None:
        """Drop the waiting causes of a deleted owner."""
        pause = self._pauses.pop(owner, None)
        if pause is not None:
            pause.timer.cancel()

    def stop(self) -> None:
        """Drop all waiting causes."""
        for owner in list(self._pauses):
            self.forget(owner)

    def _begin(self, owner: ObjectRef) -> None:
        loop = asyncio.get_running_loop()
        self._pauses[owner] = _Pause(loop.call_later(_PAUSE_SECONDS, self._end, owner))

    def _end(self, owner: ObjectRef) -> None:
        pause = self._pauses.pop(owner)
        if pause.causes:
            self._begin(owner)
        for cause in pause.causes:
            self._enqueue(owner, cause)
