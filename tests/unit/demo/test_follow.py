"""The demo shows the lines of its own resource, and the result of the run."""

from __future__ import annotations

import io
import os
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from demo.errors import DemoError
from demo.follow import follow_run
from demo.record import Process

SUBJECT = "NginxOperator default/cluster"
OURS = f"04:30:01.000 info  {SUBJECT}: "


@pytest.fixture
def this_process() -> Process:
    """Take this very process for the operator: it is alive."""
    return Process(os.getpid(), psutil.Process().create_time())


def follow(log: Path, process: Process, seconds: float = 5) -> tuple[bool, str]:
    """Follow the log; return the result of the run, and the printed lines."""
    shown = io.StringIO()
    succeeded = follow_run(Console(file=shown, width=200), log, SUBJECT, process, seconds)
    return succeeded, shown.getvalue()


@pytest.mark.parametrize(
    ("last", "expected"),
    [("Reconciled ok=4", True), ("Reconciliation failed 'Write it' error=no", False)],
)
def test_a_run_is_shown_to_its_end(
    tmp_path: Path, this_process: Process, last: str, expected: bool
) -> None:
    """Lines of other objects, and those after the end, are left out."""
    log = tmp_path / "operator.log"
    task = f"{OURS}[playbook task] 'Write it' result=changed"
    other = "04:30:01.000 info  NginxOperator default/other: Reconciled ok=4"
    log.write_text("\n".join([other, task, OURS + last, OURS + "afterwards", ""]))
    assert follow(log, this_process) == (expected, f"{task}\n{OURS}{last}\n")


def test_the_reason_of_a_failure_is_shown_whole(tmp_path: Path, this_process: Process) -> None:
    """Its further lines belong to the line above them."""
    log = tmp_path / "operator.log"
    failure = f"{OURS}Reconciliation failed cause=start\n    error:\n      no such attribute"
    log.write_text(f"{failure}\n{OURS}afterwards\n")
    assert follow(log, this_process) == (False, f"{failure}\n")


def test_a_run_that_never_starts_is_an_error_with_the_log(
    tmp_path: Path, this_process: Process
) -> None:
    """The demo has a deadline, and prints the path of the log."""
    log = tmp_path / "operator.log"
    log.write_text("")
    with pytest.raises(DemoError, match="was not reconciled within 0 s") as caught:
        follow(log, this_process, seconds=0.2)
    assert caught.value.log == log


def test_an_operator_that_ends_is_noticed_at_once(tmp_path: Path, this_process: Process) -> None:
    """A process of the same id that started at another time is not the operator."""
    log = tmp_path / "operator.log"
    log.write_text("")
    with pytest.raises(DemoError, match="has ended in the middle"):
        follow(log, Process(this_process.pid, this_process.started - 1))
