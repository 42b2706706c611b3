"""Module calls of a run: requested by the play and its workers, forked by the run's supervisor.

The play does not fork them itself: after a fork a process copies every page that it writes to,
and a play writes to many, a supervisor to few. The supervisor's memory also contains no data of
the play that a module could read.
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
_CHUNK = 64 * 1024
_KILLED = 128 + signal.SIGKILL
_SOON = b"soon"


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


def announce_module(requests: socket.socket) -> None:
    """Have a process ready by the time that the task at hand has come as far as its module."""
    requests.send(_SOON)


def call_module(requests: socket.socket, call: ModuleCall) -> tuple[int, bytes, bytes]:
    """Run a module; return exit status (as a shell gives it), standard output and error."""
    message = os.memfd_create("module")
    os.write(message, json.dumps(asdict(call)).encode())
    out, err, ended = os.pipe(), os.pipe(), os.pipe()
    sent = (message, out[1], err[1], ended[1])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent))
    try:
        requests.sendmsg([b"module"], [rights])
    finally:
        for descriptor in sent:
            os.close(descriptor)
    stdout, stderr, status = _read_all(out[0], err[0], ended[0])
    if len(status) < _STATUS.size:
        return _KILLED, stdout, stderr
    return _as_shell_status(_STATUS.unpack_from(status)[0], stdout, stderr)


class ModuleForks:
    """The supervisor's side: run the requested modules in forks, and report how they ended.

    One process waits for a module that has been announced, with the start of a program behind it.
    """

    def __init__(self) -> None:
        """Open the socket; `requests` is the end for the play."""
        self._socket, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._spare: _Waiting | None = None
        self._running: dict[int, tuple[int, int]] = {}  # pidfd -> pid, descriptor for its status

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

    def close(self) -> None:
        """Release the process that waits for a module: none will come."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.orders.close()
            os.waitpid(spare.pid, 0)

    def _take(self) -> None:
        message, rights, _, _ = self._socket.recvmsg(16, socket.CMSG_SPACE(4 * 4))
        if message == _SOON and self._spare is None:
            with contextlib.suppress(OSError):  # a fork that is needed reports it
                self._spare = _fork()
        if not rights:
            return
        given = array.array("i", rights[0][2])
        file, out, err, ended = given
        pid = self._start(given)
        for descriptor in (file, out, err):
            os.close(descriptor)
        self._running[os.pidfd_open(pid)] = pid, ended

    def _start(self, given: array.array[int]) -> int:
        process, self._spare = self._spare or _fork(), None
        while not process.run(given):
            process = _fork()
        return process.pid

    def _finish(self, process: int) -> None:
        pid, ended = self._running.pop(process)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(ended, _STATUS.pack(status))
        os.close(ended)
        os.close(process)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A process that waits for its module."""

    pid: int
    orders: socket.socket

    def run(self, descriptors: array.array[int]) -> bool:
        """Have it run a module; False if it has been killed meanwhile."""
        with self.orders:
            try:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
                self.orders.sendmsg([b"module"], rights)
            except OSError:
                os.waitpid(self.pid, 0)
                return False
        return True


def _fork() -> _Waiting:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = fork()
    if not pid:
        # ansible-core reads its settings when it is imported, so not before it is loaded.
        from operator_runner.ansible.forkserver.module_process import become_module

        become_module(far)
    far.close()
    return _Waiting(pid, near)


@dataclass(frozen=True, slots=True)
class GivenModule:
    """A module call as it reaches its process, with the descriptors that its ends go to."""

    call: ModuleCall
    out: int
    err: int
    ended: int

    def report_exit(self, status: int) -> None:
        """Report the exit status and close the outputs; the exit itself takes a while."""
        for stream in (1, 2):
            with contextlib.suppress(OSError):
                os.close(stream)  # unless the module did
        with contextlib.suppress(BrokenPipeError):
            # As waitpid has it.
            os.write(self.ended, _STATUS.pack(status << 8))


def receive_module(orders: socket.socket) -> GivenModule | None:
    """Return the module that the process is to run; None if there will be none."""
    _, rights, _, _ = orders.recvmsg(16, socket.CMSG_SPACE(4 * 4))
    if not rights:
        return None
    message, out, err, ended = array.array("i", rights[0][2])
    os.set_inheritable(ended, False)
    with os.fdopen(message, "rb") as file:
        file.seek(0)
        return GivenModule(ModuleCall(**json.load(file)), out, err, ended)


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
                data = os.read(key.fd, _CHUNK)
                found[key.fd].append(data)
                if not data or key.fd == ended:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(parts) for parts in found.values()]
