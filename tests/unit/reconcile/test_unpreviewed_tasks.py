"""Which tasks of a dry run are named because their effects are unknown."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import RunEvent
from operator_runner.reconcile.preview import UnpreviewedTasks

_BY_CHECK_MODE = 'skipping: [localhost] => {"msg": "Command would have run if not in check mode"}'
_BY_WHEN = 'skipping: [localhost] => {"skip_reason": "Conditional result was False"}'


@pytest.mark.parametrize(
    ("kind", "action", "result", "stdout", "named"),
    [
        ("runner_on_skipped", "ansible.builtin.command", None, _BY_CHECK_MODE, True),
        ("runner_item_on_skipped", "ansible.builtin.uri", None, _BY_CHECK_MODE, True),
        ("runner_on_skipped", "ansible.builtin.command", None, _BY_WHEN, False),
        ("runner_on_skipped", "ansible.builtin.command", None, '{"censored": "x"}', True),
        ("runner_on_skipped", "kubernetes.core.k8s", None, '{"censored": "x"}', False),
        ("runner_on_ok", "command", {"changed": True, "start": "2026-01-01 00:00:00"}, "", False),
        ("runner_on_ok", "ansible.builtin.command", {"changed": True, "start": None}, "", True),
        ("runner_on_ok", "kubernetes.core.k8s", {"changed": True}, "", False),
        ("runner_on_ok", "operator_sdk.util.requeue_after", {"changed": True}, "", False),
        ("runner_on_ok", "ansible.builtin.copy", {"changed": True, "dest": "/etc/a"}, "", True),
        (
            "runner_on_ok",
            "ansible.builtin.copy",
            {"changed": True, "dest": "/var/lib/operator-runner/.run-0123456789abcdef/a"},
            "",
            False,
        ),
        ("runner_on_ok", "community.mysql.mysql_db", {"changed": True}, "", True),
        ("runner_on_ok", "community.mysql.mysql_db", {"changed": False}, "", False),
    ],
)
def test_tasks_of_check_mode_are_named(
    kind: str, action: str, result: Any, stdout: str, named: bool
) -> None:
    """With module and place; not those of a condition, and not those that were run."""
    tasks = UnpreviewedTasks()
    data = {"task": "Do it", "task_action": action, "task_path": "main.yml:3", "res": result}
    tasks(RunEvent(kind, data, stdout))
    assert list(tasks.tasks) == ([f"task Do it ({action}), main.yml:3"] if named else [])
