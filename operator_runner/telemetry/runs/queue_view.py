"""Data of queue and schedules that the API serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from operator_runner.core.model import Cause, Json, ObjectRef


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A resource in the queue.

    `state` is `Running`, `Queued` (waiting for a worker) or `Delayed`. `seconds` is how long it has
    been queued, or the time until it is due. `failures` counts those in a row. `position` begins
    with 1 and is set for queued resources only.
    """

    ref: ObjectRef
    state: str
    causes: Sequence[Cause]
    seconds: float | None = None
    failures: int = 0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """The next tick of a resource with a schedule; `error` is why there is none."""

    ref: ObjectRef
    next: datetime | None
    last: datetime | None
    error: str = ""


class OperatorView(Protocol):
    """What the API reads of a running operator; no method blocks or changes anything."""

    def identity(self) -> Json:
        """Return name, version, kinds and leadership of this replica."""

    def queue(self) -> Sequence[QueueEntry]:
        """Return the resources that run, wait or are due later."""

    def schedules(self) -> Sequence[ScheduleEntry]:
        """Return the resources with a schedule."""

    def dependents(self) -> Sequence[tuple[ObjectRef, Sequence[ObjectRef]]]:
        """Return each resource with the objects that its runs have created or read."""

    async def output(self, ref: ObjectRef, run_id: str) -> str:
        """Return the output of a finished run from its artifacts, empty if they are not kept."""
