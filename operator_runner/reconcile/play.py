"""Run the play of one resource: its request to the executor, and who sees its events."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog

from operator_runner.core.durations import short_duration
from operator_runner.core.model import (
    EventSpec,
    Json,
    ObjectRef,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Watch,
    desired_state,
    uid_of,
)
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.conditions import awaiting_deletion
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import EventHandler, Observer, ResourceRun
from operator_runner.reconcile.play_log import PlayLog, task_time
from operator_runner.reconcile.request_annotations import HANDLED_ANNOTATION, annotations_of
from operator_runner.reconcile.variables import extra_vars, templated_fields

_log = structlog.get_logger(__name__)
_TEMPLATE_WARNING = "Text of the resource is evaluated as a template"
_LONG_TASK = timedelta(minutes=10)
_WAITED = re.compile(r"timed out waiting for (\w+ \S+)")


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

    def __init__(
        self, dependencies: Dependencies, ansible: AnsibleSettings, observers: list[Observer]
    ) -> None:
        """`ansible` are the settings of all runs; `observers` see each play."""
        self._deps = dependencies
        self._ansible = ansible
        self._observers = observers

    async def run(self, run: ResourceRun) -> RunOutcome:
        """Run a play to its end; return its outcome. Raises what the executor does."""
        watch = run.watch
        if not watch.mark_unsafe and (fields := list(templated_fields(run.body))):
            _log.warning(
                _TEMPLATE_WARNING, fields=fields, hint="markUnsafe: true, or --mark-unsafe"
            )
        access = self._deps.access.grant(run.body, watch, run.run_id, of_finalizer=run.is_deletion)
        with access as kubeconfig:
            async with AsyncExitStack() as stack:
                contexts = [observer.playing(run) for observer in self._observers]
                entered = [await stack.enter_async_context(each) for each in contexts]
                handlers = [each for each in entered if each is not None]

                def on_event(event: RunEvent) -> None:
                    for handle in handlers:
                        handle(event)

                request = self._request(run, kubeconfig)
                outcome = await self._deps.executor.run(request, on_event)
                outcome = awaiting_deletion(await self._explained(run.ref, outcome), run.body)
                for observer in self._observers:
                    outcome = await observer.played(run, outcome)
                run.outcome = outcome
        return outcome

    def _request(self, run: ResourceRun, kubeconfig: str) -> RunRequest:
        watch, ansible, verbosity = run.watch, self._ansible, run.overrides.verbosity
        content = watch.content_for(cleanup=run.is_deletion)
        return RunRequest(
            run_id=run.run_id,
            ref=run.ref,
            content=content,
            extra_vars=extra_vars(
                run.body,
                watch,
                cleanup=run.is_deletion,
                excluded=run.excluded,
                schedule_time=run.schedule_time,
            ),
            kubeconfig=kubeconfig,
            verbosity=ansible.verbosity_for(run.ref.gvk) if verbosity is None else verbosity,
            max_artifacts=run.artifacts,
            timeout=watch.timeout or ansible.timeout,
            causes=tuple(run.causes),
            native_types=watch.native_types,
            field_manager=watch.field_manager,
            gather_facts=watch.gather_facts,
            job=watch.job,
            uid=run.uid,
            state_key=_state_key(
                run.body,
                watch,
                content,
                cleanup=run.is_deletion,
                schedule_time=str(run.schedule_time),
            ),
            environment=self._deps.run_environment(run.run_id),
        )

    async def _explained(self, ref: ObjectRef, outcome: RunOutcome) -> RunOutcome:
        """Add the nearest kind to a failure about one that is not served, the cause to a wait."""
        first, *others = outcome.failures or (None,)
        if first is None:
            return outcome
        if first.unserved is not None:
            hint = await self._deps.cluster.explain_missing(first.unserved)
            if hint.startswith("its CRD is missing"):
                return outcome
        elif (waited := _WAITED.search(first.message)) is not None:
            hint = self._deps.dependents.readiness(ref, waited[1]).message
            if not hint.startswith(f"{waited[1]} "):
                return outcome
        else:
            return outcome
        if not hint or hint in first.message:
            return outcome
        failures = (replace(first, message=f"{first.message} ({hint})"), *filter(None, others))
        return replace(outcome, failures=failures)


class RecordObserver(Observer):
    """Records runs for the operator's API, and announces each to what delays upgrades."""

    def __init__(self, dependencies: Dependencies) -> None:
        """See `records` and `run_guard` of `Dependencies`."""
        self._records = dependencies.records
        self._guard = dependencies.run_guard

    @asynccontextmanager
    async def playing(self, run: ResourceRun) -> AsyncIterator[EventHandler]:
        """See `Observer`."""
        self._records.started(run.ref, run.uid, run.run_id, tuple(run.causes))
        try:
            async with self._guard(run.body, run.watch):
                yield lambda event: self._records.on_event(run.run_id, event)
        finally:
            self._records.ended(run.run_id, run.outcome, run.artifacts)


class TaskObserver(Observer):
    """Logs the tasks of a play, measures them, and reports the one that takes long."""

    def __init__(self, dependencies: Dependencies, ansible: AnsibleSettings) -> None:
        """`ansible` has the settings of the log."""
        self._deps = dependencies
        self._ansible = ansible

    @asynccontextmanager
    async def playing(self, run: ResourceRun) -> AsyncIterator[EventHandler]:
        """See `Observer`."""
        raw = self._ansible.raw_output or (run.overrides.verbosity or 0) > 0
        play_log = PlayLog(run.ref, run.run_id, self._ansible, raw=raw)
        long_tasks = LongTasks(lambda task: self._report_long_task(run, task))

        def on_event(event: RunEvent) -> None:
            play_log(event)
            long_tasks.on_event(event)
            if (timing := task_time(event)) is not None:
                self._deps.metrics.task_finished(run.ref.gvk, *timing)

        try:
            yield on_event
        finally:
            long_tasks.end()
        if run.outcome is not None:
            play_log.end(run.outcome)

    async def _report_long_task(self, run: ResourceRun, task: str) -> None:
        limit = short_duration(_LONG_TASK)
        _log.warning("Task is still running", task=task, after=limit)
        note = (
            f"task '{task}' has been running for {limit}; its output: operator-runner runs logs"
            f" {run.run_id}; to end such runs, set `timeout` in watches.yaml"
        )
        event = EventSpec("LongTask", note, warning=True, run_id=run.run_id)
        await self._deps.cluster.emit(run.body, event)


def _state_key(
    body: Json, watch: Watch, content: RunContent, *, cleanup: bool, schedule_time: str
) -> str:
    """Return a digest of the resource as users write it, and of what is run for it.

    Its status is left out, and what the operator itself answers.
    """
    annotations = annotations_of(body)
    parts = {
        "uid": uid_of(body),
        "state": desired_state(body),
        "labels": body["metadata"].get("labels"),
        "annotations": {k: v for k, v in annotations.items() if k != HANDLED_ANNOTATION},
        "content": str(content.path),
        "vars": dict(watch.vars),
        "cleanup": cleanup,
        "schedule": schedule_time,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
