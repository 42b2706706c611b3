"""Terminate a process and its descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

import psutil

from operator_runner.ansible.libc import call

_PLAY_GRACE_SECONDS = 5.0
"""Time between SIGTERM and SIGKILL of a play."""
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that terminate a process gracefully; a closing terminal sends SIGHUP."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that all of them can be terminated.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Get SIGTERM when the parent process ends.

    Source: prctl(2), PR_SET_PDEATHSIG. `parent` is its pid: it may have ended before this call.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def end_descendants(pid: int, grace: float) -> None:
    """Terminate all descendants of `pid`: SIGTERM, `grace` seconds, then SIGKILL."""
    terminated = signal_descendants(pid, signal.SIGTERM)
    psutil.wait_procs(terminated, timeout=grace)
    while survivors := signal_descendants(pid, signal.SIGKILL):
        psutil.wait_procs(survivors, timeout=1)


def has_children() -> bool:
    """Return whether this process has a running child; ended ones are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def become_reaper(parent: int) -> NoReturn:
    """Replace this program by a small one that waits for its children, and ends with `parent`.

    Its descendants are terminated then; without it, they would outlive the parent.
    """
    # Blocked until the program handles them.
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    os.execv(sys.executable, [sys.executable, "-P", "-m", __name__, str(parent)])  # noqa: S606


def _reap() -> None:
    def end(*_: object) -> NoReturn:
        end_descendants(os.getpid(), 0.0)
        os._exit(0)

    for number in END_SIGNALS:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
    adopt_orphans()
    die_with_parent(int(sys.argv[1]))
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def end_run() -> NoReturn:
    """Exit this process, which supervises a play, after terminating the play's processes."""
    end_descendants(os.getpid(), _PLAY_GRACE_SECONDS)
    # No cleanup handlers: the run was interrupted.
    os._exit(128 + signal.SIGTERM)


def signal_descendants(pid: int, number: signal.Signals) -> list[psutil.Process]:
    """Send a signal to all running descendants of `pid`; return them."""
    try:
        processes = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    living = [process for process in processes if _is_running(process)]
    for process in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return living


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _prctl(option: int, argument: int) -> None:
    call("prctl", option, argument, 0, 0, 0)


if __name__ == "__main__":
    _reap()
