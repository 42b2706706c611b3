"""Run the play of one resource: its request to the executor, and who sees its events."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog

from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.durations import short_duration
from operator_runner.core.model import (
    CREATED,
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
from operator_runner.core.texts import truncated, without_colours
from operator_runner.reconcile.annotations import HANDLED_ANNOTATION, annotations_of
from operator_runner.reconcile.conditions import awaiting_deletion
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import EventHandler, Observer, ResourceRun
from operator_runner.reconcile.variables import extra_vars, templated_fields
from operator_runner.telemetry import output_thread

_log = structlog.get_logger(__name__)

_RESULTS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_item_on_failed": "item failed",
}
_TIMED = {"runner_on_ok", "runner_on_failed", "runner_on_unreachable"}
_MAX_ERROR_BYTES = 300
_TITLE = "--------------------------- Ansible Task StdOut -------------------------------"
_RULE = "-------------------------------------------------------------------------------"


class PlayLog:
    """Logs a play while it runs, by --ansible-log-events and its verbosity: call it, then `end`.

    Tasks are log lines. The output of Ansible itself is written to stdout between them, in the
    frames of ansible-operator, which tests of existing projects search for; on a terminal, and
    with `lines`, nothing is. There, the failure that ends a run is in the log line about the run
    alone.
    """

    def __init__(self, ref: ObjectRef, run_id: str, ansible: AnsibleSettings, *, raw: bool) -> None:
        """Log for `ref`; `raw` writes the output of the run instead of a line per task."""
        self._ref = ref
        self._run_id = run_id
        self._framed = ansible.framed
        self._lines = ansible.log_events == "lines"
        self._output: list[str] | None = [] if ansible.debug_logs else None
        self._failures: list[dict[str, Any]] = []
        """Lines about failures that may be rescued, or end the run."""
        self._log_event: Callable[[RunEvent], None] = {
            "nothing": _log_nothing,
            "tasks": self._log_raw if raw else self._log_task,
            "lines": self._log_raw if raw else self._log_task,
            "everything": self._log_everything,
        }[ansible.log_events]

    def __call__(self, event: RunEvent) -> None:
        """Log one event. Ansible has already censored results of no_log tasks."""
        if self._output is not None and event.stdout:
            self._output.append(event.stdout)
        self._log_event(event)
        if event.kind == "playbook_on_stats" and event.stdout and self._framed:
            self._write_block("Ansible Task Status Event StdOut", event.stdout)

    def end(self, outcome: RunOutcome) -> None:
        """Log the end of the run, with all of its output if ANSIBLE_DEBUG_LOGS is set."""
        if self._output:
            self._write_block("Ansible Debug Result", "\n".join(self._output))
        if outcome.successful:
            self._log_failures()
        if self._framed and outcome.successful:
            _log.info("Ansible-runner exited successfully", job=self._run_id)

    def _log_raw(self, event: RunEvent) -> None:
        # The recap is written as a block.
        if event.stdout and not (self._framed and event.kind == "playbook_on_stats"):
            self._write(event.stdout)

    def _log_everything(self, event: RunEvent) -> None:
        fields = self._fields(event) | {"event_type": event.kind, "EventData": event.data}
        _log.info("[playbook event]", **fields)
        self._write_frame(event)

    def _log_task(self, event: RunEvent) -> None:
        if event.kind == "playbook_on_task_start":
            self._log_start(event)
        elif event.kind in _RESULTS:
            self._log_result(event)
        elif event.kind == "runner_item_on_ok":
            self._write_frame(event)

    def _log_start(self, event: RunEvent) -> None:
        self._log_failures()
        if has_trait(_action(event), Trait.QUIET):
            return
        # On a terminal the result follows a moment later and is enough.
        level = _log.info if self._framed else _log.debug
        level("[playbook task start]", **self._fields(event, "Name"))
        self._write_frame(event)

    def _log_result(self, event: RunEvent) -> None:
        result = event.data.get("res") or {}
        if event.kind == "runner_on_ok" and _action(event) == "debug":
            # The frames of a loop have its items.
            items = () if self._framed else result.get("results") or ()
            shown = [each for each in items if isinstance(each, dict) and not each.get("skipped")]
            fields = self._fields(event, "TaskArgs")
            for each in shown or [result]:
                _log.info("[playbook debug]", output=_debug_output(each), **fields)
            self._write_frame(event)
            return
        if event.kind == "runner_on_skipped" or has_trait(_action(event), Trait.QUIET):
            _log.debug("[playbook task]", result=_RESULTS[event.kind], **self._fields(event))
            return
        if event.kind == "runner_on_ok":
            word = "changed" if result.get("changed") else "ok"
            _log.info("[playbook task]", result=word, **self._fields(event))
            return
        ignored = " (ignored)" if event.data.get("ignore_errors") else ""
        fields = self._fields(event, "Task", "TaskArgs")
        if self._framed:
            fields["EventData.FailedTaskPath"] = event.data.get("task_path")
        elif stderr := _last_error(result):
            fields["stderr"] = stderr  # which the frame has too
        self._failures.append(fields | {"result": _RESULTS[event.kind] + ignored})
        if self._framed or ignored:
            self._log_failures()
        self._write_frame(event)

    def _log_failures(self) -> None:
        while self._failures:
            _log.warning("[playbook task failed]", **self._failures.pop(0))

    def _fields(self, event: RunEvent, *contract_keys: str) -> dict[str, Any]:
        """Return the fields of a line about a task; `contract_keys` those of the contract."""
        fields = {"task": event.data.get("task") or event.data.get("name")}
        if event.kind != "playbook_on_task_start" and event.data.get("duration") is not None:
            fields["seconds"] = round(float(event.data["duration"]), 3)
        if event.kind == "runner_on_failed":
            fields["path"] = event.data.get("task_path")
        if self._framed and contract_keys:
            fields |= {"gvk": str(self._ref.gvk), "job": self._run_id, "event_type": event.kind}
            fields |= {f"EventData.{name}": event.data.get(_KEYS[name]) for name in contract_keys}
        return {name: value for name, value in fields.items() if value is not None}

    def _write_frame(self, event: RunEvent) -> None:
        if not self._framed or not event.stdout:
            return
        task, heading = event.data.get("task"), ""
        if task is not None and event.kind != "playbook_on_task_start":
            heading = f"\n TASK [{task}] ******************************** \n"
        output_thread.write_play_output(f"\n{_TITLE}\n{heading}{event.stdout}\n\n{_RULE}")

    def _write_block(self, title: str, text: str) -> None:
        resource = f"{self._ref.name}/{self._ref.namespace}"
        heading = f"{title} ({self._ref.gvk}, {resource})"
        self._write(f"\n----- {heading:>70} -----\n\n{text}\n\n----------", text)

    def _write(self, text: str, content: str = "") -> None:
        """Write output of the play; with `lines`, its content is a log line."""
        if self._lines:
            _log.info("[playbook output]", output=without_colours(content or text))
        else:
            output_thread.write_play_output(text)


_OF_EACH_RESULT = (
    *("changed", "failed", "skipped", "attempts", "failed_when_result", "changed_when_result"),
    *("ansible_loop_var", "ansible_index_var", "ansible_loop"),
)
"""Keys beside the variable in a result of `debug`."""
_KEYS = {"Name": "name", "Task": "task", "TaskArgs": "task_args"}


def _debug_output(result: Json) -> str:
    """Return what `debug` shows: its message, or a variable with its value."""
    if (text := result.get("msg", result.get("censored"))) is not None:
        return str(text)
    loop = {result.get(name) for name in ("ansible_loop_var", "ansible_index_var")}
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in result.items()
        if not name.startswith("_ansible_") and name not in {*_OF_EACH_RESULT, *loop}
    )


def _last_error(result: Json) -> str:
    """Return the last line that a failed command wrote to stderr; empty if it is hidden."""
    stderr = result.get("stderr")
    if not isinstance(stderr, str) or "censored" in result or result.get("_ansible_no_log"):
        return ""
    return truncated(stderr.strip().rpartition("\n")[2].strip(), _MAX_ERROR_BYTES)


def _log_nothing(_event: RunEvent) -> None:
    pass


def task_time(event: RunEvent) -> tuple[str, str, float] | None:
    """Return name, action and duration in seconds of a finished task, None for other events."""
    seconds = event.data.get("duration")
    if event.kind not in _TIMED or seconds is None:
        return None
    return str(event.data.get("task") or ""), str(event.data.get("task_action") or ""), seconds


def _action(event: RunEvent) -> str:
    return str(event.data.get("task_action") or "").rpartition(".")[2]


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

    def __init__(self, dependencies: Dependencies, ansible: AnsibleSettings) -> None:
        """`ansible` are the settings of all runs."""
        self._deps = dependencies
        self._ansible = ansible

    async def run(self, run: ResourceRun) -> RunOutcome:
        """Run a play to its end; return its outcome. Raises what the executor does."""
        watch = run.watch
        if not watch.mark_unsafe and (fields := list(templated_fields(run.body))):
            _log.warning(
                _TEMPLATE_WARNING, fields=fields, hint="markUnsafe: true, or --mark-unsafe"
            )
        access = self._deps.access.grant(run.body, watch, run.run_id, of_finalizer=run.is_deletion)
        held = self._deps.dependents.hold_events(run.ref, is_new=CREATED in run.causes)
        with held, access as kubeconfig:
            async with AsyncExitStack() as stack:
                contexts = [observer.playing(run) for observer in run.acting()]
                entered = [await stack.enter_async_context(each) for each in contexts]
                handlers = [each for each in entered if each is not None]

                def on_event(event: RunEvent) -> None:
                    for handle in handlers:
                        handle(event)

                request = self._request(run, kubeconfig)
                outcome = await self._deps.executor.run(request, on_event)
                outcome = awaiting_deletion(await self._explained(run.ref, outcome), run.body)
                for observer in run.acting():
                    outcome = await observer.played(run, outcome)
                run.outcome = outcome
        return outcome

    def _environment(self, run_id: str) -> Mapping[str, str]:
        traces = self._deps.traces
        of_trace = {} if traces is None else traces.run_environment(run_id)
        return {**self._deps.environment, **of_trace}

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
            environment=self._environment(run.run_id),
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
            async with self._guard(run.body, run.watch) if self._guard else nullcontext():
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
