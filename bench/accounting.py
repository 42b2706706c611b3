"""What processes and folders take: CPU, memory, descriptors, files. Read from /proc by psutil."""

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
    """Return the children of a process that may be gone, in which case it has none."""
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
    """Return the processes that were started with this in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(name) == value:
                found.append(process)
    return found


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process tree, with all of it that has been waited for.

    Meant for quiet moments: the time of a process that is neither there nor waited for is lost.
    """
    return sum(sum(process.cpu_times()[:4]) for process in family(pid))


def child_seconds() -> float:
    """Return user and system time of all children of this process that have been waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def memory(processes: Iterable[psutil.Process]) -> int:
    """Return the proportional set size in bytes: what is shared counts by its share."""
    total = 0
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
            rows = (line.split() for line in rollup.splitlines())
            total += sum(int(row[1]) * 1024 for row in rows if row[0] == "Pss:")
    return total


def descriptors(processes: Iterable[psutil.Process]) -> int:
    """Return the number of open file descriptors."""
    return sum(process.num_fds() for process in processes)


def files(folders: Iterable[Path]) -> int:
    """Return the number of files below these folders."""
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))


def files_and_folders(folders: Iterable[Path]) -> int:
    """Return the number of files and folders below these; they themselves do not count."""
    walks = (walk for folder in folders for walk in os.walk(folder))
    return sum(len(folders) + len(names) for _, folders, names in walks)
