"""Runs that may have left something undone."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.ansible.outcome import Completeness, partial_by
from operator_runner.core.model import RunEvent

START = "playbook_on_task_start"


def meta(**data: Any) -> dict[str, Any]:
    """Return the data of an event of a meta task."""
    return {"task_action": "meta", "task_path": "main.yml:3", "task_uuid": "1", **data}


def job(**result: Any) -> RunEvent:
    """Return the result of an asynchronous task."""
    return RunEvent("runner_on_ok", {"res": {"ansible_job_id": "j1", **result}})


@pytest.mark.parametrize(
    ("events", "recap", "keyword", "expected"),
    [
        ([], {"ok": {"localhost": 3}, "skipped": {"localhost": 2}}, "", ""),
        ([], {"rescued": {"localhost": 1}}, "", "a task failed and was rescued"),
        ([], {"ignored": {"localhost": 1}}, "", "a task failed and was ignored"),
        ([RunEvent(START, meta())], {}, "end_play", "the role was ended by `meta: end_play`"),
        ([RunEvent(START, meta())], {}, "", "unknown effect of `meta`"),
        ([RunEvent(START, meta())], {}, "flush_handlers", ""),
        ([RunEvent(START, meta(task_path=""))], {}, "", ""),
        ([RunEvent(START, meta()), RunEvent("runner_on_skipped", meta())], {}, "end_host", ""),
        ([job(finished=0)], {}, "", "an asynchronous task was not waited for"),
        ([job(finished=0), job(finished=1)], {}, "", ""),
    ],
)
def test_a_run_is_complete_unless_something_was_left_undone(
    events: list[RunEvent], recap: dict[str, Any], keyword: str, expected: str
) -> None:
    """Skipped tasks are part of a complete run; failures, early ends and open jobs are not."""
    found = Completeness(lambda *_: keyword)
    for event in events:
        found.add(event)
    assert found.fault(recap).startswith(expected)
    assert bool(found.fault(recap)) is bool(expected)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ("", {}, ""),
        ("--vault-password-file=/vault -e a=b --timeout 3 --tree x", {}, ""),
        ("--start-at-task='Show the title'", {}, "--start-at-task"),
        ("-vv --skip a", {}, "--skip"),
        ("-tconfig", {}, "-tconfig"),
        ("-C", {}, "-C"),
        ("", {"ANSIBLE_RUN_TAGS": "config"}, "ANSIBLE_RUN_TAGS"),
        ("", {"ANSIBLE_SKIP_TAGS": ""}, ""),
    ],
)
def test_arguments_by_which_runs_are_partial(
    arguments: str, environment: dict[str, str], expected: str
) -> None:
    """Such a run leaves out tasks, whose objects are wanted all the same."""
    assert partial_by(arguments, environment) == expected
