"""An operator that unloads Ansible while it has no runs, and loads it again."""

from __future__ import annotations

from functools import partial

import psutil

from tests.functional.test_operator import echo, wait_for_text
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

_UNLOADED = "Unloaded Ansible: no runs; the next run loads it again"


def test_edits_after_ansible_is_unloaded_are_reconciled(
    kubectl: Kubectl, operator: Operator
) -> None:
    """The operator continues to watch meanwhile, and unloads Ansible again after each run."""
    operator.start("--fork-server-idle-timeout=1s")
    for number, text in enumerate(("moon", "world"), 1):
        kubectl.apply(echo(sayThis=text))
        wait_for_text(kubectl, operator, f"hello {text}")
        eventually(
            lambda: [line["msg"] for line in operator.lines("Reconciled", _UNLOADED)],
            partial(_is_unloaded_after, number),
            details=operator.log,
        )
        eventually(lambda: not psutil.Process(operator.pid).children(), details=operator.log)
        assert operator.probe("readyz") == operator.probe("healthz") == 200
    assert operator.terminate() == 0


def _is_unloaded_after(runs: int, messages: list[str]) -> bool:
    return messages.count("Reconciled") == runs and messages[-1] == _UNLOADED
