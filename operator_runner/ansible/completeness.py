"""Decide from the events of a run whether it did all that its resource asks for. Pure.

A task that is skipped because its `when` is false is part of a complete run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from operator_runner.core.model import Json, RunEvent

_META = ("meta", "ansible.builtin.meta", "ansible.legacy.meta")
_ENDS = ("end_batch", "end_host", "end_play", "end_role")
_HARMLESS = ("clear_facts", "flush_handlers", "noop", "refresh_inventory", "reset_connection")
_BAD_COUNTS = {
    "failures": "a task failed",
    "dark": "a host was unreachable",
    "rescued": "a task failed and was rescued",
    "ignored": "a task failed and was ignored",
}
"""Counts of the recap, and what they mean."""


_PARTIAL = ("--check", "--limit", "--skip-tags", "--start-at-task", "--step", "--tags")
_PARTIAL_LETTERS = ("-C", "-l", "-t")
_PARTIAL_VARIABLES = ("ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS")


def partial_by(arguments: str, environment: Mapping[str, str]) -> str:
    """Return what makes runs leave out tasks or changes, empty if nothing does.

    `arguments` are those for ansible-playbook; long ones may be abbreviated.
    """
    for word in shlex.split(arguments):
        name = word.partition("=")[0]
        is_long = name.startswith("--") and any(each.startswith(name) for each in _PARTIAL)
        if (is_long and name != "--") or name.startswith(_PARTIAL_LETTERS):
            return name
    return next((name for name in _PARTIAL_VARIABLES if environment.get(name)), "")


@dataclass(slots=True)
class Completeness:
    """Collects events: call `add` with each, in order, then `fault`."""

    keyword_of: Callable[[str, str], str]
    """Returns the text of a keyword of the task at a path; see `ansible_yaml.task_keyword`."""
    _asynchronous: set[str] = field(default_factory=set)
    """Ids of asynchronous tasks that have not been seen to finish."""
    _metas: dict[str, str] = field(default_factory=dict)
    """Paths of meta tasks that were not skipped, by their uuids."""

    def add(self, event: RunEvent) -> None:
        """Add the next event."""
        data = event.data
        if event.kind == "playbook_on_task_start":
            # Those without a path are Ansible's own.
            if data.get("task_action") in _META and data.get("task_path"):
                self._metas[str(data.get("task_uuid"))] = str(data["task_path"])
        elif event.kind == "runner_on_skipped":
            self._metas.pop(str(data.get("task_uuid")), None)
        elif event.kind.startswith("runner_") and isinstance(result := data.get("res"), dict):
            self._add_result(result)

    def fault(self, recap: Json) -> str:
        """Return why the run was not complete, empty if it was; `recap` is Ansible's."""
        for name, text in _BAD_COUNTS.items():
            if any((recap.get(name) or {}).values()):
                return text
        if self._asynchronous:
            return "an asynchronous task was not waited for"
        for path in self._metas.values():
            action = next(filter(None, (self.keyword_of(path, each) for each in _META)), "")
            if action in _ENDS:
                return f"the role was ended by `meta: {action}` ({path})"
            if action not in _HARMLESS:
                return f"unknown effect of `meta` ({path})"
        return ""

    def _add_result(self, result: Json) -> None:
        job: Any = result.get("ansible_job_id")
        if job is None:
            return
        if result.get("finished"):
            self._asynchronous.discard(str(job))
        else:
            self._asynchronous.add(str(job))
