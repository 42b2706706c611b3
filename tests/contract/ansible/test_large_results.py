"""Results of megabytes, of tasks that fail and of tasks that succeed: cut, not lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from operator_runner.ansible.executor import AnsibleExecutor, open_launcher
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import GVK, ObjectRef, RunContent, RunEvent, RunRequest
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from operator_runner.reconcile.conditions import finished

SETTINGS = AnsibleSettings(skip_facts=True)
REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
MILLIONS = 3_000_000
TASKS = f"""
- name: Much output
  shell: head -c {MILLIONS} /dev/zero | tr '\\0' o
- name: Much output of a failure
  shell: head -c {MILLIONS} /dev/zero | tr '\\0' e >&2; exit 3
  ignore_errors: true
- name: Much that is hidden
  fail: {{msg: "{{{{ 'hidden' * {MILLIONS // 6} }}}}"}}
  no_log: true
  ignore_errors: true
- name: Many items
  fail: {{msg: "because of {{{{ item ~ 'x' * 100000 }}}}"}}
  loop: '{{{{ range(30) | list }}}}'
  ignore_errors: true
- name: Too much
  fail: {{msg: "because {{{{ 'y' * {MILLIONS} }}}}"}}
"""


@pytest.mark.parametrize("name", ["cold", "warm"])
async def test_a_message_of_megabytes_is_cut_and_not_lost(
    tmp_path: Path, name: ExecutorName
) -> None:
    """The failure has its task, its place and the first part of its message, and so do events."""
    role = tmp_path / "roles" / "large"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks" / "main.yml").write_text(TASKS)
    request = RunRequest("one", REF, RunContent(role=role), {}, "none", 2, 3, None)
    events: list[RunEvent] = []
    async with open_launcher(name, SETTINGS) as launcher:
        executor = AnsibleExecutor(launcher, RunDirs(tmp_path / "work"), SETTINGS)
        outcome = await executor.run(request, events.append)
    (failure,) = outcome.failures
    assert failure.task == "Too much"
    assert "roles/large/tasks/main.yml:" in failure.path
    assert failure.message.startswith("because yyy")
    assert f" of {MILLIONS + 8} characters]" in failure.message
    conditions = finished([], outcome, 1, datetime.now(UTC))
    (message,) = (each["message"] for each in conditions if each["type"] == "Failure")
    assert len(message.encode()) <= 32768
    assert "(task 'Too much' at " in message
    results = {event.data["task"]: event.data["res"] for event in events if _is_result(event)}
    assert results["Much output"]["stdout"].startswith("ooo")
    assert results["Much output of a failure"]["rc"] == 3
    assert results["Much output of a failure"]["stderr"].startswith("eee")
    assert len(results["Many items"]["results"]) == 30
    assert results["Many items"]["results"][29]["msg"].startswith("because of 29xxx")
    hidden = json.dumps([event.data for event in events if event.data.get("task") == HIDDEN])
    assert "hiddenhidden" not in hidden
    assert max(len(json.dumps(event.data)) for event in events) < 1_000_000


HIDDEN = "Much that is hidden"


def _is_result(event: RunEvent) -> Any:
    return event.kind in {"runner_on_ok", "runner_on_failed"}
