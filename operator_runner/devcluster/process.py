"""Start, recognise and end the programs of a cluster, and run others to their end.

A process is known by its pid and its start time, so that a pid that the kernel has given to
another program is never mistaken for ours. Every program also carries the cluster's home in its
environment: by that mark, processes that a crashed or killed command left behind are found.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from operator_runner.devcluster.errors import ClusterError


def search_path() -> str:
    """Return PATH with the folders that Debian leaves out for plain users: ip, runc and more."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def is_installed(name: str) -> bool:
    """Return whether the program `name` is installed."""
    return shutil.which(name, path=search_path()) is not None


def run_program(*command: str, stdin: Path | None = None, folder: Path | None = None) -> str:
    """Run `command` and return what it printed; raise ClusterError if it fails.

    The file `stdin`, if given, is its input; it works in `folder`.
    """
    with (stdin or Path(os.devnull)).open("rb") as source:
        try:
            done = subprocess.run(
                command,
                stdin=source,
                cwd=folder,
                env={**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8"},
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise ClusterError(f"{command[0]} is not installed") from error
    if done.returncode:
        reason = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ClusterError(f"`{' '.join(command)}` failed: {reason}")
    return done.stdout.decode(errors="replace")


MARK = "OPERATOR_RUNNER_CLUSTER"
_PROC = Path("/proc")
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this boot."""

    pid: int
    started: int
    """Start time in clock ticks since boot: field 22 of /proc/PID/stat."""


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    threads: int
    started: int

    @property
    def ended(self) -> bool:
        """Whether nothing runs any more: a zombie whose other threads end has its sockets still."""
        return self.state in "ZX" and self.threads <= 1


def start(command: Sequence[str], *, mark: Path, log: Path) -> Process:
    """Start `command` in a session of its own, its output appended to `log`.

    The environment is small on purpose: a proxy or a KUBECONFIG of the user must not reach the
    parts of the cluster.
    """
    environment = {
        "PATH": search_path(),
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        MARK: str(mark),
    }
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawn(
            shutil.which(command[0], path=search_path()) or command[0],
            list(command),
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
        )
    except OSError as error:
        raise ClusterError(f"{command[0]} could not be started: {error.strerror}") from error
    finally:
        os.close(output)
    stat = _stat(pid)
    # Nobody but this process can reap its child, so the entry is there, even if it died at once.
    assert stat is not None
    return Process(pid, stat.started)


def child_of(parent: Process) -> Process | None:
    """Return the first child of `parent`, or None while it has none."""
    children = (
        Process(pid, stat.started)
        for pid in _pids()
        if (stat := _stat(pid)) is not None and stat.parent == parent.pid
    )
    return min(children, key=lambda child: child.started, default=None)


def alive(process: Process) -> bool:
    """Return whether `process` still runs; a zombie does not."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    stat = _stat(process.pid)
    return stat is not None and stat.started == process.started and not stat.ended


def of_cluster(home: Path) -> tuple[Process, ...]:
    """Return all live processes that were started for the cluster with this home."""
    entry = os.fsencode(f"{MARK}={home}")
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if entry not in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                continue
            stat = _stat(pid)
            if stat is not None and not stat.ended:
                found.append(Process(pid, stat.started))
    return tuple(found)


def end(process: Process, *, grace: float) -> None:
    """End `process`: SIGTERM, and SIGKILL after `grace` seconds; return when it is gone."""
    deadline = time.monotonic() + grace
    _signal(process, signal.SIGTERM)
    while alive(process) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    kill([process])


def kill(processes: Iterable[Process]) -> None:
    """Kill `processes` at once and return when all of them are gone."""
    remaining = [process for process in processes if alive(process)]
    for process in remaining:
        _signal(process, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while remaining := [process for process in remaining if alive(process)]:
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in remaining)
            raise ClusterError(f"processes {pids} do not end although they were killed")
        time.sleep(_POLL_SECONDS)


def boot() -> str:
    """Return the id of this boot of the machine; pids of another boot mean nothing."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def parse_stat(line: str) -> tuple[str, int, int, int]:
    """Return state letter, parent pid, number of threads and start time of /proc/PID/stat.

    The program's name, in parentheses, may itself hold spaces and parentheses: proc(5).
    """
    fields = line[line.rindex(")") + 2 :].split()
    return fields[0], int(fields[1]), int(fields[17]), int(fields[19])


def _signal(process: Process, number: signal.Signals) -> None:
    if alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> _Stat | None:
    try:
        return _Stat(*parse_stat((_PROC / str(pid) / "stat").read_text(errors="replace")))
    except (FileNotFoundError, ProcessLookupError):
        return None
