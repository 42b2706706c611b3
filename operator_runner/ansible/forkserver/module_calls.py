"""Module calls of a run: sent by the play and its workers, received by the module's process.

Between them is the run's supervisor, which forks that process (`module_forks`).
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

STATUS = struct.Struct("i")
_CHUNK_BYTES = 64 * 1024
_KILLED = 128 + signal.SIGKILL
MODULE = b"module"
"""A module with a process of its own. For a shared process, its key is sent instead."""
ENDING, READY = b"ending", b"ready"
MESSAGE_BYTES = 64
"""Maximum size of a message beside its descriptors: a SHA-256 digest in hexadecimal digits."""


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


def call_module(
    requests: socket.socket, call: ModuleCall, share_key: str = ""
) -> tuple[int, bytes, bytes]:
    """Run a module; return exit status (as a shell gives it), standard output and error.

    Modules with the same `share_key` may share a process; those without a key have their own.
    """
    message = os.memfd_create("module")
    os.write(message, json.dumps(asdict(call)).encode())
    out, err, ended = os.pipe(), os.pipe(), os.pipe()
    sent = (message, out[1], err[1], ended[1])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent))
    try:
        requests.sendmsg([share_key.encode() or MODULE], [rights])
    finally:
        for descriptor in sent:
            os.close(descriptor)
    stdout, stderr, status = _read_all(out[0], err[0], ended[0])
    if len(status) < STATUS.size:
        return _KILLED, stdout, stderr
    return _as_shell_status(STATUS.unpack_from(status)[0], stdout, stderr)


@dataclass(frozen=True, slots=True)
class GivenModule:
    """A module call as it reaches its process, with the descriptors that its ends go to."""

    call: ModuleCall
    out: int
    err: int
    ended: int
    is_shared: bool
    """Whether the process may run another module after it."""

    def report_exit(self, status: int) -> None:
        """Report the exit status and close the outputs; the exit itself takes a while."""
        for stream in (1, 2):
            with contextlib.suppress(OSError):
                os.close(stream)  # unless the module did
        with contextlib.suppress(BrokenPipeError):
            # As waitpid has it.
            os.write(self.ended, STATUS.pack(status << 8))

    def report_ending(self, orders: socket.socket) -> None:
        """Report to the supervisor that the module ends, before the play can notice it."""
        if self.is_shared:
            with contextlib.suppress(OSError):  # the supervisor wants no more modules
                orders.send(ENDING)

    def offer_process(self, orders: socket.socket) -> None:
        """Offer the process for another module. Raises OSError if none is wanted."""
        os.close(self.ended)
        orders.send(READY)


def receive_module(orders: socket.socket) -> GivenModule | None:
    """Return the module that the process is to run; None if there will be none."""
    request, rights, _, _ = orders.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4 * 4))
    if not rights:
        return None
    message, out, err, ended = array.array("i", rights[0][2])
    os.set_inheritable(ended, False)
    with os.fdopen(message, "rb") as file:
        file.seek(0)
        call = ModuleCall(**json.load(file))
    return GivenModule(call, out, err, ended, is_shared=request != MODULE)


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
