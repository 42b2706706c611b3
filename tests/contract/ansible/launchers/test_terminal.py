"""Plays that wait for somebody at a terminal: an error at once, since nobody is there."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

_PLAY = "- hosts: localhost\n  gather_facts: false\n"


def test_a_task_that_waits_for_input_fails(both: Both) -> None:
    """`pause` without a time fails and can be rescued; with one it waits for that time."""
    tasks = """
- {name: Seconds, pause: {seconds: 1, prompt: Almost there}}
- {name: Enter, pause: , ignore_errors: true}
- {name: Answer, pause: {prompt: Go on?}, register: answer}
"""
    record = both(Project(tasks))
    assert record.result("Seconds")["stdout"].startswith("Paused for")
    assert "no terminal: the task waits for input" in record.result("Enter")["msg"]
    (failure,) = record.outcome.failures
    assert failure.task == "Answer"
    assert "set `seconds` or `minutes` of `pause`" in failure.message


@pytest.mark.parametrize(
    ("play", "task", "named"),
    [
        ("", "{name: Fails, fail: {msg: on purpose}, debugger: on_failed}", "'Fails'"),
        ("", "{name: Works, debug: {}, debugger: always}", "'Works'"),
        ("  strategy: debug\n", "{name: Fails, fail: {msg: on purpose}}", "'Fails'"),
        ("  vars_prompt: [{name: answer}]\n", "{name: Never, debug: {}}", "site.yml:3:"),
    ],
    ids=["on_failed", "always", "strategy", "vars_prompt"],
)
def test_a_play_that_waits_for_input_fails(both: Both, play: str, task: str, named: str) -> None:
    """The debugger and vars_prompt: the outcome names the task, or the line of the variable."""
    record = both(Project(files={"site.yml": f"{_PLAY}{play}  tasks:\n  - {task}\n"}))
    assert not record.outcome.successful
    messages = " ".join(str(failure) for failure in record.outcome.failures)
    assert named in messages
    assert "no terminal: " in record.stdout


def test_a_variable_of_the_resource_answers_vars_prompt(both: Both) -> None:
    """As with --extra-vars."""
    play = f"{_PLAY}  vars_prompt: [{{name: answer}}]\n  tasks:\n  - debug: {{var: answer}}\n"
    record = both(Project(files={"site.yml": play}, variables={"answer": "yes"}))
    assert record.outcome.successful
