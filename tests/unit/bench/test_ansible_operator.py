"""The log of ansible-operator: which of its lines are failed reconciles."""

from __future__ import annotations

import json

from bench.ansible_operator import failed_task, failures


def _line(message: str, error: str) -> str:
    return json.dumps({"level": "error", "msg": message, "error": error}, separators=(",", ":"))


def test_a_failed_reconcile_is_found_among_the_output_of_plays() -> None:
    """Output of a play is not JSON, and errors of other parts do not concern a run."""
    log = "\n".join(
        [
            "{ TASK [web : Write the Deployment] }",
            _line("Cache miss, can not find in rest mapper", "no matches for kind"),
            _line("Reconciler error", "event runner on failed"),
        ]
    )
    assert failures(log) == ["event runner on failed"]


def test_a_conflict_is_not_a_failure() -> None:
    """The operator repeats a write of the status whose resource has changed meanwhile."""
    conflict = 'Operation cannot be fulfilled on webs "a": the object has been modified; please'
    assert failures(_line("Reconciler error", conflict)) == []
    both = f"{_line('Reconciler error', conflict)}\n{_line('Reconciler error', 'exit status 4')}"
    assert failures(both) == ["exit status 4"]


def test_the_failed_task_is_named_with_its_result() -> None:
    """The last one: the play went on after those before it."""
    line = {"level": "error", "EventData.Task": "Ask", "error": "[playbook task failed]"}
    output = '\x1b[0;31mfatal: [localhost]: FAILED! => {"msg": "%s"}\x1b[0m'
    log = "\n".join(
        part
        for task, text in (("Ask", "ignored"), ("Refuse", "too large"))
        for part in (
            json.dumps({**line, "EventData.Task": task}, separators=(",", ":")),
            f" TASK [{task}] ****",
            output % text,
        )
    )
    assert failed_task(log) == """task 'Refuse': {"msg": "too large"}"""
    assert failed_task("{}") == ""
