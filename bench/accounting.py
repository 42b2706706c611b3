"""Measure CPU time, memory and descriptors of processes, and files of folders."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

import psutil


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    head = psutil.Process(pid)
    return [head, *head.children(recursive=True)]


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return the children of a process; none if it has ended."""
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def with_environment(name: str, value: str) -> list[psutil.Process]:
    """Return the processes with this variable in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(name) == value:
                found.append(process)
    return found


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process tree, reaped descendants included, in seconds.

    Call it while nothing runs: the time of ended processes that are not reaped yet is missing.
    """
    return sum(sum(process.cpu_times()[:4]) for process in family(pid))


def child_seconds() -> float:
    """Return user and system time of all reaped children of this process, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory(processes: Iterable[psutil.Process], *, of_files: bool = True) -> int:
    """Return the sum of the proportional set sizes in bytes.

    Without `of_files` pages of files are left out: other processes of the machine that run the same
    programs share them, so that each process has more of them when another one ends.
    """
    counted = {"Pss:"} if of_files else {"Pss_Anon:", "Pss_Shmem:"}
    total = 0
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
            rows = (line.split() for line in rollup.splitlines())
            total += sum(int(row[1]) * 1024 for row in rows if row[0] in counted)
    return total


def descriptors(processes: Iterable[psutil.Process]) -> int:
    """Return the number of open file descriptors."""
    return sum(process.num_fds() for process in processes)


def files(folders: Iterable[Path]) -> int:
    """Return the number of files below these folders."""
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))


def files_and_folders(folders: Iterable[Path]) -> int:
    """Return the number of files and folders below these, themselves excluded."""
    walks = (walk for folder in folders for walk in os.walk(folder))
    return sum(len(folders) + len(names) for _, folders, names in walks)
