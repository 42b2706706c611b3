"""Tells of a play as it runs, as --ansible-log-events and the verbosity of the run ask for.

Log lines go through the log, and the output of Ansible itself stands between them on stdout, in
the frames of ansible-operator, which people and tests of existing projects look for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from operator_runner.core.model import ObjectRef, RunEvent, RunOutcome
from operator_runner.core.settings import AnsibleSettings
from operator_runner.telemetry import transcript

_log = structlog.get_logger(__name__)
_RESULTS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_item_on_failed": "item failed",
}
_TIMED = {"runner_on_ok", "runner_on_failed", "runner_on_unreachable"}
# ansible-operator keeps silent about these, for they only move values around.
_QUIET_ACTIONS = {"set_fact", "debug"}
_TITLE = "--------------------------- Ansible Task StdOut -------------------------------"
_RULE = "-------------------------------------------------------------------------------"


class PlayLog:
    """Tells of one run: call it with each event, and `end` it."""

    def __init__(self, ref: ObjectRef, run_id: str, ansible: AnsibleSettings, *, raw: bool) -> None:
        """Choose how much is told; `raw` gives the output of the run instead of each task."""
        self._ref = ref
        self._run_id = run_id
        self._framed = ansible.framed
        self._output: list[str] | None = [] if ansible.debug_logs else None
        self._tell: Callable[[RunEvent], None] = {
            "nothing": _tell_nothing,
            "tasks": self._tell_raw if raw else self._tell_task,
            "everything": self._tell_everything,
        }[ansible.log_events]

    def __call__(self, event: RunEvent) -> None:
        """Tell one event. Results of no_log tasks come censored by Ansible already."""
        if self._output is not None and event.stdout:
            self._output.append(event.stdout)
        self._tell(event)
        if event.kind == "playbook_on_stats" and event.stdout and self._framed:
            self._write_block("Ansible Task Status Event StdOut", event.stdout)

    def end(self, outcome: RunOutcome) -> None:
        """Tell that the run has ended, and all of its output if ANSIBLE_DEBUG_LOGS asks for it."""
        if self._output:
            self._write_block("Ansible Debug Result", "\n".join(self._output))
        if self._framed and outcome.successful:
            _log.info("Ansible-runner exited successfully", job=self._run_id)

    def _tell_raw(self, event: RunEvent) -> None:
        # The recap has a block of its own.
        if event.stdout and not (self._framed and event.kind == "playbook_on_stats"):
            transcript.write(event.stdout)

    def _tell_everything(self, event: RunEvent) -> None:
        fields = self._fields(event) | {"event_type": event.kind, "EventData": event.data}
        _log.info("[playbook event]", **fields)
        self._write_frame(event)

    def _tell_task(self, event: RunEvent) -> None:
        if event.kind == "playbook_on_task_start":
            self._tell_start(event)
        elif event.kind in _RESULTS:
            self._tell_result(event)
        elif event.kind == "runner_item_on_ok":
            self._write_frame(event)

    def _tell_start(self, event: RunEvent) -> None:
        if _action(event) in _QUIET_ACTIONS:
            return
        # On a terminal the result, a moment later, says enough.
        level = _log.info if self._framed else _log.debug
        level("[playbook task start]", **self._fields(event, "Name"))
        self._write_frame(event)

    def _tell_result(self, event: RunEvent) -> None:
        result = event.data.get("res") or {}
        if event.kind == "runner_on_ok" and _action(event) == "debug":
            output = str(result.get("msg", ""))
            _log.info("[playbook debug]", output=output, **self._fields(event, "TaskArgs"))
            self._write_frame(event)
            return
        if event.kind == "runner_on_skipped" or _action(event) in _QUIET_ACTIONS:
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
        word = _RESULTS[event.kind] + ignored
        _log.warning("[playbook task failed]", result=word, **fields)
        self._write_frame(event)

    def _fields(self, event: RunEvent, *theirs: str) -> dict[str, Any]:
        """Return what a line says about a task; `theirs` are keys of ansible-operator."""
        fields = {"task": event.data.get("task") or event.data.get("name")}
        if event.kind != "playbook_on_task_start" and event.data.get("duration") is not None:
            fields["seconds"] = round(float(event.data["duration"]), 3)
        if event.kind == "runner_on_failed":
            fields["path"] = event.data.get("task_path")
        if self._framed and theirs:
            fields |= {"gvk": str(self._ref.gvk), "job": self._run_id, "event_type": event.kind}
            fields |= {f"EventData.{name}": event.data.get(_KEYS[name]) for name in theirs}
        return {name: value for name, value in fields.items() if value is not None}

    def _write_frame(self, event: RunEvent) -> None:
        if not self._framed or not event.stdout:
            return
        task, heading = event.data.get("task"), ""
        if task is not None and event.kind != "playbook_on_task_start":
            heading = f"\n TASK [{task}] ******************************** \n"
        transcript.write(f"\n{_TITLE}\n{heading}{event.stdout}\n\n{_RULE}")

    def _write_block(self, title: str, text: str) -> None:
        where = f"{self._ref.name}/{self._ref.namespace}"
        heading = f"{title} ({self._ref.gvk}, {where})"
        transcript.write(f"\n----- {heading:>70} -----\n\n{text}\n\n----------")


_KEYS = {"Name": "name", "Task": "task", "TaskArgs": "task_args"}


def _tell_nothing(_event: RunEvent) -> None:
    pass


def task_time(event: RunEvent) -> tuple[str, str, float] | None:
    """Return name, action and seconds of the task that an event ended, None for any other event."""
    seconds = event.data.get("duration")
    if event.kind not in _TIMED or seconds is None:
        return None
    return str(event.data.get("task") or ""), str(event.data.get("task_action") or ""), seconds


def _action(event: RunEvent) -> str:
    return str(event.data.get("task_action") or "").rpartition(".")[2]
