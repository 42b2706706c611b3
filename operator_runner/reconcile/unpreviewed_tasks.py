"""Name the tasks of a dry run whose effects cannot be previewed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operator_runner.core.actions import FILE_MODULES, acts_on_cluster, builtin_name
from operator_runner.core.model import RunEvent

_RESULTS = frozenset({"runner_on_ok", "runner_on_skipped"})
_HARMLESS = FILE_MODULES | {"add_host", "debug", "group_by", "pause", "set_fact", "set_stats"}
"""Modules of Ansible whose results change nothing, or only files of the host that the run reads."""
_CHECK_MODE = "check mode"


class UnpreviewedTasks:
    """Collects such tasks: call it with each event of a play."""

    def __init__(self) -> None:
        """Begin without tasks."""
        self.tasks: dict[str, None] = {}

    def __call__(self, event: RunEvent) -> None:
        """Take the next event."""
        if event.kind in _RESULTS and is_unpreviewed(event.data):
            self.tasks[_text(event.data)] = None


def is_unpreviewed(data: Mapping[str, Any]) -> bool:
    """Return whether a result is that of a task that check mode has skipped, or only predicted."""
    result = data.get("res")
    if not isinstance(result, dict):
        return False
    if _is_skipped_by_check_mode(result):
        return True
    action = str(data.get("resolved_action") or data.get("task_action") or "")
    return result.get("changed") is True and not (acts_on_cluster(action) or _is_harmless(action))


def _is_skipped_by_check_mode(result: Mapping[str, Any]) -> bool:
    items = [result, *(each for each in result.get("results") or () if isinstance(each, dict))]
    return any(_CHECK_MODE in str(each.get("msg") or "") for each in items)


def _is_harmless(action: str) -> bool:
    # A command that has changed something was run: it acts on the cluster alone.
    name = builtin_name(action)
    return name in _HARMLESS or name in {"command", "shell", "tempfile"}


def _text(data: Mapping[str, Any]) -> str:
    """Return `task Migrate the database (ansible.builtin.command), roles/a/tasks/main.yml:3`."""
    place = f", {data['task_path']}" if data.get("task_path") else ""
    return f"task {data.get('task') or 'without a name'} ({data.get('task_action')}){place}"
