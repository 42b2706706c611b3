"""State of a running operator that its HTTP API serves: queue, schedules and drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from operator_runner.core.model import Cause, ObjectRef


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


@dataclass(frozen=True, slots=True)
class DriftEntry:
    """A resource whose objects differ, or for which that is unknown because the dry run failed.

    `text` is what a run would write, as of the last dry run that succeeded; empty for nothing.
    `failure` is why the last dry run failed; empty if it succeeded.
    """

    ref: ObjectRef
    text: str = ""
    failure: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the last dry run succeeded."""
        return not self.failure

    @property
    def message(self) -> str:
        """The message of the condition Drifted."""
        return self.failure or self.text
