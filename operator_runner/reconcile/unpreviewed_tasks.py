"""Name the tasks of a dry run whose effects cannot be previewed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from operator_runner.core.ansible_modules import Trait, has_trait
from operator_runner.core.model import RunEvent

VERBOSITY = 1
"""The least verbosity at which the output has the reason why a task was skipped."""
_SKIPPED = frozenset({"runner_on_skipped", "runner_item_on_skipped"})
_COMPLETE = Trait.PREVIEWED | Trait.REQUEUES
"""Modules whose effects are previewed, or have none on the cluster."""
_WRITES_FILE = Trait.WRITES_FILE | Trait.MAKES_TEMPORARY_FILE
_RUN_DIR = re.compile(r"/\.run-[0-9a-f]{16}/")
"""In paths of files in the run's own directory, which `ansible/rundir.py` makes."""
_REASONS = ("check mode", '"censored"')
"""In the output of a skipped task: check mode, or a reason that no_log hides."""


class UnpreviewedTasks:
    """Collects such tasks: call it with each event of a play."""

    def __init__(self) -> None:
        """Start without any."""
        self.tasks: dict[str, None] = {}

    def __call__(self, event: RunEvent) -> None:
        """Take the next event."""
        action = str(event.data.get("resolved_action") or event.data.get("task_action") or "")
        if has_trait(action, _COMPLETE):
            return
        if event.kind in _SKIPPED:
            found = any(reason in event.stdout for reason in _REASONS)
        else:
            found = event.kind == "runner_on_ok" and self._is_predicted(action, event.data)
        if found:
            self.tasks[_text(action, event.data)] = None

    def _is_predicted(self, action: str, data: Mapping[str, Any]) -> bool:
        """Return whether check mode has predicted a change that was not made."""
        result = data.get("res")
        if not isinstance(result, dict) or result.get("changed") is not True:
            return False
        if has_trait(action, _WRITES_FILE):
            return not _RUN_DIR.search(str(result.get("dest") or result.get("path") or ""))
        if has_trait(action, Trait.RUNS_COMMAND):
            return not result.get("start")  # it is run if its task has `check_mode: false`
        return not has_trait(action, Trait.PLAY)


def _text(action: str, data: Mapping[str, Any]) -> str:
    """Return `task Migrate the database (ansible.builtin.command), roles/a/tasks/main.yml:3`."""
    place = f", {data['task_path']}" if data.get("task_path") else ""
    return f"task {data.get('task') or 'without a name'} ({action}){place}"
