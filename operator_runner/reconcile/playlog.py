"""Tells the tasks of a play in the log as they run, as --ansible-log-events asks for."""

from __future__ import annotations

from typing import Any

import structlog

from operator_runner.model import RunEvent

_log = structlog.get_logger(__name__)
_RESULTS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_item_on_failed": "item failed",
}
# ansible-operator keeps silent about these, for they only move values around.
_QUIET_ACTIONS = {"set_fact", "debug"}


class PlayLog:
    """Logs the events of one run. `mode` is nothing, tasks or everything."""

    def __init__(self, mode: str) -> None:
        """Choose how much is told."""
        self._mode = mode

    def __call__(self, event: RunEvent) -> None:
        """Tell one event. Results of no_log tasks come censored by Ansible already."""
        if self._mode == "nothing":
            return
        if self._mode == "everything":
            _log.info("[playbook event]", event_type=event.kind, **_task(event))
        elif event.kind == "playbook_on_task_start":
            self._tell_start(event)
        elif event.kind in _RESULTS:
            self._tell_result(event)

    def _tell_start(self, event: RunEvent) -> None:
        if _action(event) not in _QUIET_ACTIONS:
            _log.debug("[playbook task start]", **_task(event))

    def _tell_result(self, event: RunEvent) -> None:
        result = event.data.get("res") or {}
        if event.kind == "runner_on_ok" and _action(event) == "debug":
            _log.info("[playbook debug]", output=str(result.get("msg", "")), **_task(event))
            return
        if event.kind == "runner_on_skipped" or _action(event) in _QUIET_ACTIONS:
            _log.debug("[playbook task]", result=_RESULTS[event.kind], **_task(event))
            return
        if event.kind == "runner_on_ok":
            word = "changed" if result.get("changed") else "ok"
            _log.info("[playbook task]", result=word, **_task(event))
            return
        ignored = " (ignored)" if event.data.get("ignore_errors") else ""
        _log.warning(
            "[playbook task failed]", result=_RESULTS[event.kind] + ignored, **_task(event)
        )


def _action(event: RunEvent) -> str:
    return str(event.data.get("task_action") or "").rpartition(".")[2]


def _task(event: RunEvent) -> dict[str, Any]:
    fields = {"task": event.data.get("task") or event.data.get("name")}
    if event.kind != "playbook_on_task_start" and event.data.get("duration") is not None:
        fields["seconds"] = round(float(event.data["duration"]), 3)
    if event.kind == "runner_on_failed":
        fields["path"] = event.data.get("task_path")
    return {name: value for name, value in fields.items() if value is not None}
