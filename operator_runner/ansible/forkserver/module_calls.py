"""Module calls of a run: sent by the play and its workers to the supervisor, which forks modules.

The play does not fork them itself: after a fork a process copies every page that it writes to, and
a play writes to many, a supervisor to few. The supervisor's memory also contains no data of the
play that a module could read.
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

from operator_runner.ansible.forkserver.forks import fork

_STATUS = struct.Struct("i")
_CHUNK_BYTES = 64 * 1024
_KILLED = 128 + signal.SIGKILL
_REQUEST = b"!"
"""Goes with the descriptors of a module; SOCK_SEQPACKET has no empty messages."""


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A module, its arguments, and the environment of its process."""

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
    sent = (message, out[1], err[1], ended[1])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent))
    try:
        requests.sendmsg([_REQUEST], [rights])
    finally:
        for descriptor in sent:
            os.close(descriptor)
    stdout, stderr, status = _read_all(out[0], err[0], ended[0])
    if len(status) < _STATUS.size:
        return _KILLED, stdout, stderr
    return _as_shell_status(_STATUS.unpack_from(status)[0], stdout, stderr)


class ModuleForks:
    """The supervisor's side: run the requested modules in forks, and report how they ended."""

    def __init__(self) -> None:
        """Open the socket; `requests` is the end for the play."""
        self._socket, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._running: dict[int, tuple[int, int]] = {}  # pidfd -> pid, descriptor for its status

    def watched(self) -> list[int]:
        """Return the descriptors to wait for."""
        return [self._socket.fileno(), *self._running]

    def handle(self, ready: list[int]) -> None:
        """Deal with those of `watched` that are ready to be read."""
        # Requests last: they open descriptors, which may get the numbers of closed ones.
        for process in set(ready) & set(self._running):
            self._finish(process)
        if self._socket.fileno() in ready:
            self._start()

    def _start(self) -> None:
        _, rights, _, _ = self._socket.recvmsg(len(_REQUEST), socket.CMSG_SPACE(4 * 4))
        if not rights:
            return
        message, out, err, ended = array.array("i", rights[0][2])
        pid = fork()
        if not pid:
            # ansible-core reads its settings when it is imported, so not before it is loaded.
            from operator_runner.ansible.forkserver.module_process import become_module

            become_module(message, out, err, ended)
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


def received_call(message: int) -> ModuleCall:
    """Return the call in a message of `call_module`, in the process of the module."""
    with os.fdopen(message, "rb") as file:
        file.seek(0)
        return ModuleCall(**json.load(file))


def report_exit(ended: int, status: int) -> None:
    """Report the exit status of a module and close its outputs; the exit itself takes a while."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            os.close(stream)  # unless the module did
    with contextlib.suppress(BrokenPipeError):
        # As waitpid has it.
        os.write(ended, _STATUS.pack(status << 8))


def _as_shell_status(status: int, stdout: bytes, stderr: bytes) -> tuple[int, bytes, bytes]:
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status), stdout, stderr
    number = os.WTERMSIG(status)
    dumped = " (core dumped)" if os.WCOREDUMP(status) else ""
    return 128 + number, stdout, stderr + f"{signal.strsignal(number)}{dumped}\n".encode()


def _read_all(out: int, err: int, ended: int) -> list[bytes]:
    """Read both outputs to their end, and the exit status, which may be sent twice."""
    found: dict[int, list[bytes]] = {out: [], err: [], ended: []}
    with selectors.DefaultSelector() as selector:
        for reader in found:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, _CHUNK_BYTES)
                found[key.fd].append(data)
                if not data or key.fd == ended:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(parts) for parts in found.values()]
