"""The moments of a reconcile at which features act, and what they are given.

`observers` lists the features of a watch; each is one file. The reconciler knows these moments and
no feature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, TypeAlias

from operator_runner.core.model import (
    Cause,
    EventSpec,
    Json,
    ObjectRef,
    RunEvent,
    RunOutcome,
    Trigger,
    Watch,
    describe,
    generation_of,
    uid_of,
)
from operator_runner.core.resource_states import ResourceState
from operator_runner.reconcile.annotations import Overrides, annotations_of
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.decide import Action, Run, RunDeselection
from operator_runner.reconcile.results import ReconcileResult

EventHandler: TypeAlias = Callable[[RunEvent], None]
_NO_OVERRIDES = Overrides()
_UNKNOWN = datetime.min.replace(tzinfo=UTC)


class Phase(Enum):
    """What the conditions of a resource are about."""

    STARTED = auto()
    RESUMED = auto()
    SUSPENDED = auto()
    INTERRUPTED = auto()
    """A run was ended, and no other follows."""
    FINISHED = auto()
    """A run has ended, with an outcome."""
    DESELECTED = auto()
    FAILED = auto()
    """Nothing could be run, which is tried again."""
    STALLED = auto()
    """Nothing can be run until the resource is edited."""


REPORTS = frozenset({Phase.FINISHED, Phase.DESELECTED, Phase.FAILED, Phase.STALLED})
"""Phases in which the declared status and the fields of a run are written too."""


@dataclass(slots=True)
class ResourceRun:
    """One run, from the decision to its report; or what is reported in place of a run."""

    ref: ObjectRef
    body: Json
    """The resource as it was before the run."""
    causes: Sequence[Cause]
    watch: Watch
    """With the content and the vars of this run."""
    state: ResourceState
    action: Action
    run_id: str = ""
    """Empty if nothing is run."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    overrides: Overrides = _NO_OVERRIDES
    excluded: frozenset[str] = frozenset()
    """Fields that are not passed to the role."""
    schedule_time: str | None = None
    """The tick that the run gets, if one is due: it asks for the run, whatever has changed."""
    is_announced: bool = False
    """Whether the start is reported though the run may change nothing."""
    now: datetime = _UNKNOWN
    """The time of the conditions that are written."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the status that are written with the conditions; None removes a field."""
    values: dict[str, Json] = field(default_factory=dict)
    """What expressions of the status see beside `resource`, `result` and dependents."""
    outcome: RunOutcome | None = None
    message: str = ""
    """Why there is no outcome; what a condition says of that."""
    reported: Json | None = None
    """The resource after the report of a run that succeeded."""
    observers: Sequence[Observer] = ()
    """All of the watch; see `acting`."""

    def acting(self) -> list[Observer]:
        """Return the observers that have something to do for the resource as it is now."""
        found: set[Hashable] = {cause.trigger for cause in self.causes}
        found.update(annotations_of(self.body), self.state.kinds())
        found.update(str(each.get("type")) for each in read_conditions(self.body))
        return [
            each
            for each in self.observers
            if each.marks is None or not found.isdisjoint(each.marks)
        ]

    @property
    def is_deselection(self) -> bool:
        """Whether the run is the `deselection` of the watch."""
        return isinstance(self.action, RunDeselection)

    @property
    def is_deletion(self) -> bool:
        """Whether the run is the clean-up of a resource that is being deleted."""
        return isinstance(self.action, Run) and self.action.cleanup

    @property
    def is_cleanup(self) -> bool:
        """Whether the run is either of them."""
        return self.is_deletion or self.is_deselection

    @property
    def generation(self) -> int:
        """The generation of the resource, 0 if its kind has none."""
        return generation_of(self.body)

    @property
    def uid(self) -> str:
        """The uid of the resource."""
        return uid_of(self.body)

    @property
    def artifacts(self) -> int:
        """The number of runs of the resource that are kept."""
        own = self.overrides.artifacts
        return self.watch.max_runner_artifacts if own is None else own

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, or until now."""
        end = self.ended_at or datetime.now(UTC)
        return round((end - self.started_at).total_seconds(), 3)

    def event(self, reason: str, note: str, *, warning: bool = False) -> EventSpec:
        """Return an Event about the end of the run."""
        return EventSpec(
            reason,
            note,
            warning,
            # Without the numbers of attempts, so that Events of retries form one series.
            cause=describe(_without_attempt(cause) for cause in self.causes),
            duration_seconds=self.seconds,
            run_id=self.run_id,
        )


def _without_attempt(cause: Cause) -> Cause:
    return replace(cause, detail="") if cause.trigger is Trigger.RETRY else cause


class Observer:
    """A feature, at the moments of a reconcile; by default it does nothing.

    Every coroutine raises ApiError. What a feature keeps of a resource is a slot of its state.
    """

    marks: Collection[Hashable] | None = None
    """Annotations and types of conditions of a resource, slots of its state and triggers of a run:
    the feature acts where there is one of them, and everywhere with None."""

    async def hold(self, run: ResourceRun) -> ReconcileResult | None:
        """Return a result in place of the action that was decided, None to carry it out."""

    async def begin(self, run: ResourceRun) -> None:
        """Add to a run, before its start is reported. Raises RunError if it cannot start."""

    def playing(self, run: ResourceRun) -> AbstractAsyncContextManager[EventHandler | None]:
        """Return what is entered around the play; it yields what gets each of its events."""
        return nullcontext()

    async def played(self, run: ResourceRun, outcome: RunOutcome) -> RunOutcome:
        """Return the outcome of a play that has ended, or a changed one."""
        return outcome

    def reporting(self, run: ResourceRun) -> None:
        """Add fields and values to a run that has ended, before they are written."""

    def conditions(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """Return the conditions with those of the feature. Pure."""
        return conditions

    def summarize(self, run: ResourceRun, phase: Phase, conditions: list[Json]) -> list[Json]:
        """Return the conditions with those that depend on the others. Pure."""
        return conditions

    async def takes_failure(self, run: ResourceRun) -> bool:
        """Return True to report the failure of a reconcile here, and not as that of a run."""
        return False

    async def ended(self, run: ResourceRun, result: ReconcileResult) -> None:
        """See a run that has ended and is reported, or what held it for good."""
