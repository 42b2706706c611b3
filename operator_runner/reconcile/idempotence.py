"""Find roles that change the same field in every run, without a change of the resource.

A password or a timestamp that is generated in each run is the usual cause. See
docs/adr/0030-idempotence.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import structlog

from operator_runner.core.model import Cause, FieldChange, ObjectRef, RunEvent, Trigger
from operator_runner.core.object_diff import summarize
from operator_runner.kube.object_readiness import is_change
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import EventHandler, Observer, ResourceRun
from operator_runner.reconcile.results import ReconcileResult

_log = structlog.get_logger(__name__)
_RUNS = 2
"""Consecutive unprompted runs that change a field until it is reported. One may still converge, by
the status of what the run before created."""
_WAITING_RUNS = 5
"""The same for runs that the role requested, or that a change of readiness led to: it waits for
something, and may write its progress."""
_MAX_FIELDS = 16
"""Changed fields that are kept for each resource."""
_TIMERS = frozenset({Trigger.START, Trigger.PERIOD, Trigger.REQUEUE})
_ENDS = {"runner_on_ok", "runner_on_failed"}
_CURE = "keep the value that the object has, or generate it once"


@dataclass(frozen=True, slots=True)
class RepeatedChange:
    """Fields of one object that a task changes in every run."""

    task: str
    ref: ObjectRef
    paths: tuple[str, ...]

    def __str__(self) -> str:
        """Return the note of the Event: task, fields, object and hint."""
        return (
            f"Not idempotent: task '{self.task}' changes {summarize(self.paths)} of {self.ref} in "
            f"every run, though nothing asked for it; {_CURE}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a run: new findings, and whether reported fields are still changed."""

    findings: tuple[RepeatedChange, ...] = ()
    is_idempotent: bool = True


@dataclass(slots=True)
class _ChangedField:
    after: bytes
    runs: int
    """Consecutive unprompted runs that changed the field from the value of the run before."""
    is_reported: bool = False


class TaskTimes:
    """Begin and end of the tasks of a run: call it with each event."""

    def __init__(self) -> None:
        """Start without tasks."""
        self._tasks: list[tuple[float, float, str]] = []

    def __call__(self, event: RunEvent) -> None:
        """Record the end of a task."""
        start, end = event.data.get("start"), event.data.get("end")
        if event.kind in _ENDS and start and end:
            task = str(event.data.get("task") or "")
            self._tasks.append((_seconds(start), _seconds(end), task))

    def at(self, seconds: float) -> str:
        """Return the task of a time in seconds since the epoch; the last one before it if none."""
        begun = [task for task in self._tasks if task[0] <= seconds]
        current = [name for _, end, name in begun if seconds <= end]
        return current[-1] if current else max(begun, default=(0.0, 0.0, ""))[2]


@dataclass(slots=True)
class IdempotenceCheck:
    """Compares the changes of consecutive successful runs of one resource."""

    needed: int = 0
    """Of the current run: see `runs_needed`; 0 if something asked for the run."""
    tasks: TaskTimes = field(default_factory=TaskTimes)
    """Of the current run."""
    fields: dict[tuple[ObjectRef, str], _ChangedField] = field(default_factory=dict)
    """Those that the last run changed."""

    def run_ended(self, changes: Sequence[FieldChange]) -> Verdict:
        """Return what a successful run has shown; `changes` are its own, in their order."""
        old, self.fields = self.fields, {}
        begun: dict[tuple[str, ObjectRef], list[str]] = {}
        for key, first, last in _by_field(changes)[:_MAX_FIELDS]:
            known = old.get(key)
            is_own = known is not None and known.after == first.before
            runs = (known.runs if known is not None and is_own else 0) + 1 if self.needed else 0
            seen = _ChangedField(last.after, runs, known is not None and known.is_reported)
            if not seen.is_reported and 0 < self.needed <= runs:
                seen.is_reported = True
                begun.setdefault((self.tasks.at(last.at), last.ref), []).append(last.path)
            self.fields[key] = seen
        findings = tuple(
            RepeatedChange(task, ref, tuple(paths)) for (task, ref), paths in begun.items()
        )
        is_idempotent = not any(each.is_reported for each in self.fields.values())
        return Verdict(findings, is_idempotent)


class IdempotenceObserver(Observer):
    """Reports fields that a role changes in every run, once until that ends."""

    def __init__(self, dependencies: Dependencies) -> None:
        """Compare what `dependents.writes` has recorded of each run."""
        self._deps = dependencies
        # Fields that were changed in a run that something asked for have no part in a finding.
        self.marks = {*_TIMERS, Trigger.DEPENDENT, IdempotenceCheck}

    async def begin(self, run: ResourceRun) -> None:
        """See `Observer`. Before the run, which begins a new record of what it writes."""
        is_echo = partial(self._deps.dependents.writes.is_echo, run.ref)
        check = run.state.slot(IdempotenceCheck)
        check.needed = 0 if run.schedule_time else runs_needed(run.causes, is_echo)
        check.tasks = TaskTimes()

    @asynccontextmanager
    async def playing(self, run: ResourceRun) -> AsyncIterator[EventHandler]:
        """See `Observer`."""
        yield run.state.slot(IdempotenceCheck).tasks

    async def ended(self, run: ResourceRun, result: ReconcileResult) -> None:
        """See `Observer`."""
        if run.is_cleanup or run.outcome is None or not run.outcome.successful:
            return
        changes = self._deps.dependents.writes.take_changes(run.ref)
        check = run.state.slot(IdempotenceCheck)
        verdict = check.run_ended(changes)
        if not check.fields:
            run.state.drop(IdempotenceCheck)
        run.state.is_idempotent = verdict.is_idempotent
        for finding in verdict.findings:
            _log.warning(
                "Role is not idempotent",
                task=finding.task,
                object=str(finding.ref),
                fields=summarize(finding.paths),
                hint=_CURE,
            )
            event = run.event("NotIdempotent", str(finding), warning=True)
            await self._deps.cluster.emit(run.body, event)


def runs_needed(causes: Iterable[Cause], is_echo: Callable[[Cause], bool]) -> int:
    """Return after how many runs with such causes a field is reported, 0 if these do not count.

    Runs count if nothing asked the role for a change: timers and its own writes led to them.
    `is_echo` returns whether a cause is about what the last run of the resource wrote.
    """
    causes = tuple(causes)
    if not all(cause.trigger in _TIMERS or _is_own(cause, is_echo) for cause in causes):
        return 0
    is_waiting = any(
        cause.trigger is Trigger.REQUEUE or is_change(cause.detail) for cause in causes
    )
    return _WAITING_RUNS if is_waiting else _RUNS


def _is_own(cause: Cause, is_echo: Callable[[Cause], bool]) -> bool:
    return cause.trigger is Trigger.DEPENDENT and is_echo(cause)


def _by_field(
    changes: Iterable[FieldChange],
) -> list[tuple[tuple[ObjectRef, str], FieldChange, FieldChange]]:
    """Return each field with its first and its last change."""
    found: dict[tuple[ObjectRef, str], tuple[FieldChange, FieldChange]] = {}
    for change in changes:
        key = (change.ref, change.path)
        first, _ = found.get(key, (change, change))
        found[key] = first, change
    return [(key, first, last) for key, (first, last) in found.items()]


def _seconds(text: str) -> float:
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
