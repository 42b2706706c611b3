"""The operator's end by signals, and its work while its output is not read."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.functional.test_operator import ROLE, echo, text_of
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.processes import is_running
from tests.support.waiting import eventually

_TALKATIVE = 12 * "- ansible.builtin.debug: {msg: \"{{ 'x' * 300000 }}\"}\n"
"""With four resources, three times the size of the output queue."""


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """Give the writing end of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(writer, b"." * size)
        except BlockingIOError:
            pass
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def test_an_unread_log_does_not_block(
    kubectl: Kubectl, operator: Operator, project: Path, full_pipe: int
) -> None:
    """Resources are reconciled, probes answer, the missing lines are counted, SIGTERM ends it."""
    role = project / ROLE
    role.write_text(f"{role.read_text()}\n{_TALKATIVE}")
    names = [f"e{number}" for number in range(4)]
    operator.start(output=full_pipe)
    kubectl.apply(*(echo(name) for name in names))
    for name in names:
        eventually(functools.partial(text_of, kubectl, name))
    eventually(lambda: operator.metric("operator_runner_log_records_dropped_total"))
    assert operator.probe("healthz") == operator.probe("readyz") == 200
    kubectl.merge("echoes.test.example.com", "e0", {"spec": {"sayThis": "still there"}})
    eventually(lambda: text_of(kubectl, "e0"), lambda text: text == "hello still there")
    assert operator.terminate() == 0


def test_a_closed_log_stops_nothing(kubectl: Kubectl, operator: Operator) -> None:
    """An operator whose reader has exited continues, and stops gracefully."""
    reader, writer = os.pipe()
    os.close(reader)
    operator.start(output=writer)
    os.close(writer)
    kubectl.apply(echo())
    eventually(lambda: text_of(kubectl), lambda text: text == "hello nothing")
    assert operator.terminate() == 0


def test_sighup_ends_the_operator_as_sigterm_does(kubectl: Kubectl, operator: Operator) -> None:
    """An active run may finish, and no process is left."""
    # The first run waits for Ansible, and has longer than usual for it.
    operator.start("--graceful-shutdown-timeout=150s")
    kubectl.apply(echo())
    eventually(lambda: operator.lines("Reconciling"), details=operator.log)
    children = psutil.Process(operator.pid).children(recursive=True)
    assert operator.terminate(number=signal.SIGHUP) == 0
    assert text_of(kubectl) == "hello nothing"
    eventually(lambda: not any(map(is_running, children)))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_during_the_start_ends_the_operator(
    operator: Operator, number: signal.Signals
) -> None:
    """While the fork server loads Ansible the operator ends in order, and the server with it.

    The signal is in the log.
    """
    operator.start(wait=False)
    servers = eventually(lambda: psutil.Process(operator.pid).children(), details=operator.log)
    assert operator.terminate(number=number) == 0
    (stopping,) = operator.lines("Stopping: received a signal")
    assert (stopping["level"], stopping["signal"]) == ("info", number.name)
    eventually(lambda: not any(map(is_running, servers)))
