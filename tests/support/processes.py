"""Processes that a test looks at: `sleep`s that it recognises, children that have ended."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil


def new_nap() -> str:
    """Return a number of seconds by which a `sleep` of one test is known."""
    return str(10_000_000 + secrets.randbelow(10_000_000))


def sleepers(*naps: str) -> list[str]:
    """Return the command lines of the `sleep` processes with one of these numbers."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(line) for line in found if line[:1] == ["sleep"] and {*line} & {*naps}]


def is_running(process: psutil.Process) -> bool:
    """Return True if the process is still running.

    An orphan that has ended stays a zombie until process 1 takes its exit status, which is
    nothing that a test can wait for.
    """
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids_of(pid: int, *, with_children: bool = True) -> list[int]:
    """Return the pid of a process, and those of all processes below it."""
    children = psutil.Process(pid).children(recursive=True) if with_children else []
    return [pid, *(child.pid for child in children)]


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to processes, of which some may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
