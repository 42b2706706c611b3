"""Log a play while it runs, according to --ansible-log-events and the verbosity of the run.

Tasks are log lines. The output of Ansible itself is written to stdout between them, in the frames
of ansible-operator, which tests of existing projects search for; on a terminal, and with `lines`,
nothing is. There, the failure that ends a run is in the log line about the run alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import structlog

from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.model import Json, ObjectRef, RunEvent, RunOutcome
from operator_runner.core.settings import AnsibleSettings
from operator_runner.core.truncation import truncated
from operator_runner.telemetry import output_thread
from operator_runner.telemetry.redaction import without_colours

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
    """Logs one run: call it with each event, then `end`."""

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
