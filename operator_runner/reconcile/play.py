"""Run the play of one resource: its request to the executor, and who sees its events."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from operator_runner.core.durations import short_duration
from operator_runner.core.model import (
    Cause,
    EventSpec,
    Json,
    ObjectRef,
    RunEvent,
    RunOutcome,
    RunRequest,
    Watch,
    uid_of,
)
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.annotation_overrides import Overrides
from operator_runner.reconcile.conditions import awaiting_deletion
from operator_runner.reconcile.decide import Run, RunDeselection
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.idempotence import TaskTimes
from operator_runner.reconcile.play_log import PlayLog, task_time
from operator_runner.reconcile.pruning import prune_after
from operator_runner.reconcile.run_state import state_key
from operator_runner.reconcile.schedule import NO_SCHEDULE, ScheduleState
from operator_runner.reconcile.variables import extra_vars, templated_fields

_log = structlog.get_logger(__name__)
_TEMPLATE_WARNING = "Text of the resource is evaluated as a template"
_LONG_TASK = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A run that is about to start; `body` is the resource.

    `cleanup` is True for its deletion, `deselection` if it is no longer chosen. `watch` has the
    content and the vars of the run.
    """

    ref: ObjectRef
    body: Json
    run_id: str
    watch: Watch
    causes: tuple[Cause, ...]
    cleanup: bool = False
    deselection: bool = False
    excluded: frozenset[str] = frozenset()
    """Fields that are not passed to the role."""
    schedule: ScheduleState = NO_SCHEDULE
    tasks: TaskTimes = field(default_factory=TaskTimes)

    @classmethod
    def of(
        cls,
        action: Run | RunDeselection,
        ref: ObjectRef,
        body: Json,
        watch: Watch,
        causes: Sequence[Cause],
    ) -> PendingRun:
        """Return the run that an action asks for, with an id of its own."""
        deselection = isinstance(action, RunDeselection)
        return cls(
            ref,
            body,
            secrets.token_hex(8),
            _deselecting(watch) if deselection else watch,
            tuple(causes),
            cleanup=isinstance(action, Run) and action.cleanup,
            deselection=deselection,
        )


class LongTasks:
    """Calls `report` with each task of a run that takes longer than `limit`, while it runs."""

    def __init__(
        self, report: Callable[[str], Coroutine[Any, Any, None]], limit: timedelta = _LONG_TASK
    ) -> None:
        """`report` must not raise."""
        self._report = report
        self._limit = limit
        self._timer: asyncio.TimerHandle | None = None
        self._reports: set[asyncio.Task[None]] = set()

    def on_event(self, event: RunEvent) -> None:
        """Take an event of the run; a task ends with the start of the next one, or the run."""
        if event.kind == "playbook_on_task_start":
            self.end()
            task = str(event.data.get("task") or event.data.get("name") or "")
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit.total_seconds(), self._begin_report, task)

    def end(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin_report(self, task: str) -> None:
        reporting = asyncio.ensure_future(self._report(task))
        self._reports.add(reporting)
        reporting.add_done_callback(self._reports.discard)


class PlayRunner:
    """Runs plays."""

    def __init__(self, dependencies: Dependencies, ansible: AnsibleSettings) -> None:
        """`ansible` are the settings of all runs."""
        self._deps = dependencies
        self._ansible = ansible

    async def run(self, pending: PendingRun, overrides: Overrides) -> RunOutcome:
        """Run a play to its end; return its outcome. Raises what the executor does."""
        watch = pending.watch
        if not watch.mark_unsafe and (fields := list(templated_fields(pending.body))):
            _log.warning(
                _TEMPLATE_WARNING, fields=fields, hint="markUnsafe: true, or --mark-unsafe"
            )
        with self._deps.access.grant(
            pending.body, watch, pending.run_id, of_finalizer=pending.cleanup
        ) as kubeconfig:
            request = self._request(pending, overrides, kubeconfig)
            raw = self._ansible.raw_output or (overrides.verbosity or 0) > 0
            play_log = PlayLog(pending.ref, pending.run_id, self._ansible, raw=raw)
            long_tasks = LongTasks(lambda task: self._report_long_task(pending, task))
            records = self._deps.records
            outcome: RunOutcome | None = None
            records.started(pending.ref, request.uid, pending.run_id, pending.causes)
            try:
                async with self._deps.run_guard(pending.body, watch):
                    outcome = await self._deps.executor.run(
                        request, self._event_handler(pending, play_log, long_tasks)
                    )
                outcome = awaiting_deletion(await self._explained(outcome), pending.body)
                if watch.prune is not None:
                    outcome = await prune_after(self._deps, pending, outcome)
                play_log.end(outcome)
                return outcome
            finally:
                long_tasks.end()
                records.ended(pending.run_id, outcome, request.max_artifacts)

    def _request(self, pending: PendingRun, overrides: Overrides, kubeconfig: str) -> RunRequest:
        watch, ansible = pending.watch, self._ansible
        verbosity, artifacts = overrides.verbosity, overrides.artifacts
        content = watch.content_for(cleanup=pending.cleanup)
        return RunRequest(
            run_id=pending.run_id,
            ref=pending.ref,
            content=content,
            extra_vars=extra_vars(
                pending.body,
                watch,
                cleanup=pending.cleanup,
                excluded=pending.excluded,
                schedule_time=pending.schedule.time,
            ),
            kubeconfig=kubeconfig,
            verbosity=ansible.verbosity_for(pending.ref.gvk) if verbosity is None else verbosity,
            max_artifacts=watch.max_runner_artifacts if artifacts is None else artifacts,
            timeout=watch.timeout or ansible.timeout,
            causes=pending.causes,
            native_types=watch.native_types,
            field_manager=watch.field_manager,
            gather_facts=watch.gather_facts,
            job=watch.job,
            uid=uid_of(pending.body),
            state_key=state_key(
                pending.body,
                watch,
                content,
                cleanup=pending.cleanup,
                schedule_time=str(pending.schedule.time),
            ),
            environment=self._deps.run_environment(pending.run_id),
        )

    async def _explained(self, outcome: RunOutcome) -> RunOutcome:
        """Add the nearest kind to a failure about one that is not served."""
        first, *others = outcome.failures or (None,)
        if first is None or first.unserved is None:
            return outcome
        hint = await self._deps.cluster.explain_missing(first.unserved)
        if not hint or hint in first.message or hint.startswith("its CRD is missing"):
            return outcome
        failures = (replace(first, message=f"{first.message} ({hint})"), *filter(None, others))
        return replace(outcome, failures=failures)

    async def _report_long_task(self, pending: PendingRun, task: str) -> None:
        limit = short_duration(_LONG_TASK)
        _log.warning("Task is still running", task=task, after=limit)
        note = (
            f"task '{task}' has been running for {limit}; its output: operator-runner runs logs"
            f" {pending.run_id}; to end such runs, set `timeout` in watches.yaml"
        )
        event = EventSpec("LongTask", note, warning=True, run_id=pending.run_id)
        await self._deps.cluster.emit(pending.body, event)

    def _event_handler(
        self, pending: PendingRun, play_log: PlayLog, long_tasks: LongTasks
    ) -> Callable[[RunEvent], None]:
        """Return what each event of a run is given to."""
        gvk = pending.watch.gvk

        def on_event(event: RunEvent) -> None:
            play_log(event)
            self._deps.records.on_event(pending.run_id, event)
            pending.tasks(event)
            long_tasks.on_event(event)
            if (timing := task_time(event)) is not None:
                self._deps.on_task_end(gvk, *timing)

        return on_event


def _deselecting(watch: Watch) -> Watch:
    """Return the watch with the content and the vars of its deselection as its own."""
    assert watch.deselection is not None
    content = watch.deselection.content or watch.content
    return replace(watch, content=content, vars={**watch.vars, **watch.deselection.vars})
