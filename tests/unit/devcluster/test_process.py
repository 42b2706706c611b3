"""Processes: recognised by more than their pid, and ended for certain."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import process
from operator_runner.devcluster.errors import ClusterError
from operator_runner.devcluster.process import Process
from tests.support.waiting import eventually

_STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    """Start a program of a cluster whose home is the temporary folder."""
    started = process.start(("sleep", "60"), mark=tmp_path, log=tmp_path / "log")
    yield started
    process.kill([started])


@pytest.mark.parametrize(
    "name", ["etcd", "a (b) c", ") 1 2 3", "with space"], ids=["plain", "nested", "evil", "space"]
)
def test_any_name_of_a_program_can_be_parsed(name: str) -> None:
    """The name is in parentheses and may contain any character, parentheses included."""
    rest = " ".join(str(number) for number in range(5, 53))
    assert process.parse_stat(f"12 ({name}) S 4 {rest}") == ("S", 4, 20, 22)


def test_a_started_program_is_alive_and_marked(sleeper: Process, tmp_path: Path) -> None:
    """It is found by the home of its cluster, without any stored state."""
    assert process.alive(sleeper)
    # Between fork and the end of exec a program does not show its environment yet.
    eventually(lambda: process.of_cluster(tmp_path), lambda found: sleeper in found)
    assert sleeper not in process.of_cluster(tmp_path / "other")


def test_a_program_has_ended_with_its_last_thread(tmp_path: Path) -> None:
    """Its first thread may have ended while others hold the shared sockets."""
    ready = tmp_path / "ready"
    exit_of_one_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    program = (
        "import ctypes, pathlib, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        f"ctypes.CDLL(None).syscall({exit_of_one_thread}, 0)\n"
    )
    started = process.start([sys.executable, "-c", program], mark=tmp_path, log=tmp_path / "log")
    try:
        eventually(ready.exists)
        stat = Path(f"/proc/{started.pid}/stat")
        eventually(lambda: process.parse_stat(stat.read_text())[0], "Z".__eq__)
        assert process.alive(started)
    finally:
        process.kill([started])
    assert not process.alive(started)


def test_a_reused_pid_is_not_taken_for_ours(sleeper: Process) -> None:
    """The same pid with another start time is another process, which is not signalled."""
    other = dataclasses.replace(sleeper, started=sleeper.started + 1)
    assert not process.alive(other)
    process.end(other, grace=1)
    assert process.alive(sleeper)


def test_a_program_leads_a_session_of_its_own(sleeper: Process) -> None:
    """Ctrl-C in the terminal does not reach it."""
    assert os.getsid(sleeper.pid) == sleeper.pid


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """After its grace it is killed."""
    stubborn = process.start(_STUBBORN, mark=tmp_path, log=tmp_path / "log")
    process.end(stubborn, grace=0.1)
    assert not process.alive(stubborn)


def test_a_program_gets_a_minimal_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies and kubeconfigs of the user do not reach the parts of a cluster."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    log = tmp_path / "log"
    started = process.start(("env",), mark=tmp_path, log=log)
    eventually(lambda: not process.alive(started))
    names = {line.partition("=")[0] for line in log.read_text().splitlines()}
    assert names == {"PATH", "HOME", "LANG", process.MARK}


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    """The error names the program that could not be started."""
    with pytest.raises(ClusterError, match="no-such-program"):
        process.start(("no-such-program",), mark=tmp_path, log=tmp_path / "log")
