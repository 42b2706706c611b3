"""Modules of a run, asked for by the play and its workers, forked by the run's supervisor.

Not by the play itself: each fork has a process copy every page anew that it writes to next,
and a play writes to many; a supervisor does next to nothing. It also has nothing of the play
in its memory that a module could see.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import selectors
import signal
import socket
import struct
from dataclasses import asdict, dataclass

_STATUS = struct.Struct("i")
_CHUNK = 64 * 1024
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A module, what it is called with, and the process that it is to find itself in."""

    name: str
    """Dotted name to import it by."""
    path: str
    params: str
    """Arguments as ansible-core encodes them for the module."""
    profile: str
    """ansible-core's name for the encoding of arguments and result."""
    utils: list[str]
    """Directories of `ansible.module_utils`, in the order of the search."""
    playbook_paths: list[str]
    """Directories beside playbooks where collections may be."""
    open_files: int
    """Soft limit of open files; 0 leaves it as it is."""
    environment: dict[str, str]
    cwd: str
    umask: int


def call_module(requests: socket.socket, call: ModuleCall) -> tuple[int, bytes, bytes]:
    """Run a module; return exit status (as a shell gives it), standard output and error."""
    message = os.memfd_create("module")
    os.write(message, json.dumps(asdict(call)).encode())
    out, err, ended = os.pipe(), os.pipe(), os.pipe()
    theirs = (message, out[1], err[1], ended[1])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", theirs))
    try:
        requests.sendmsg([b"module"], [rights])
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    stdout, stderr, status = _read_all(out[0], err[0], ended[0])
    if len(status) != _STATUS.size:
        return _KILLED, stdout, stderr
    return _as_a_shell_tells_it(_STATUS.unpack(status)[0], stdout, stderr)


class ModuleForks:
    """The supervisor's side: forks modules as asked, and tells how they ended."""

    def __init__(self) -> None:
        """Open the socket; `requests` is the end for the play."""
        self._socket, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._running: dict[int, tuple[int, int]] = {}  # pidfd -> pid, where to tell its end

    def watched(self) -> list[int]:
        """Return the descriptors to wait for."""
        return [self._socket.fileno(), *self._running]

    def handle(self, ready: list[int]) -> None:
        """Deal with those of `watched` that are ready to be read."""
        for descriptor in ready:
            if descriptor in self._running:
                self._finish(descriptor)
            elif descriptor == self._socket.fileno():
                self._take()

    def _take(self) -> None:
        _, rights, _, _ = self._socket.recvmsg(16, socket.CMSG_SPACE(4 * 4))
        if not rights:
            return
        message, out, err, ended = array.array("i", rights[0][2])
        pid = os.fork()
        if not pid:
            # ansible-core reads its settings when it is imported, so not before it is loaded.
            from operator_runner.execution.warm.module_process import become_module

            become_module(_read_call(message), out, err)
        for descriptor in (message, out, err):
            os.close(descriptor)
        self._running[os.pidfd_open(pid)] = pid, ended

    def _finish(self, process: int) -> None:
        pid, ended = self._running.pop(process)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(ended, _STATUS.pack(status))
        os.close(ended)
        os.close(process)


def _read_call(message: int) -> ModuleCall:
    with open(message, "rb") as file:
        file.seek(0)
        return ModuleCall(**json.load(file))


def _as_a_shell_tells_it(status: int, stdout: bytes, stderr: bytes) -> tuple[int, bytes, bytes]:
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status), stdout, stderr
    number = os.WTERMSIG(status)
    dumped = " (core dumped)" if os.WCOREDUMP(status) else ""
    return 128 + number, stdout, stderr + f"{signal.strsignal(number)}{dumped}\n".encode()


def _read_all(*readers: int) -> list[bytes]:
    found: dict[int, list[bytes]] = {reader: [] for reader in readers}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _CHUNK)
                if data:
                    found[key.fd].append(data)
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(parts) for parts in found.values()]
