"""Fork the modules of a run: in the run's supervisor, at the request of the play and its workers.

The play does not fork them itself: after a fork a process copies every page that it writes to,
and a play writes to many, a supervisor to few. The supervisor's memory also contains no data of
the play that a module could read.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from dataclasses import dataclass

from operator_runner.ansible.forkserver.forks import fork
from operator_runner.ansible.forkserver.module_calls import (
    ENDING,
    MESSAGE_BYTES,
    MODULE,
    READY,
    STATUS,
)


class ModuleForks:
    """The supervisor's side: run the requested modules in forks, and report how they ended.

    One process may wait for the next module that can share it.
    """

    def __init__(self) -> None:
        """Open the socket; `requests` is the end for the play."""
        self._socket, self.requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._running: dict[int, tuple[int, int]] = {}  # pidfd -> pid, descriptor for its status
        self._shared: _Shared | None = None

    def watched(self) -> list[int]:
        """Return the descriptors to wait for."""
        shared = [self._shared.process.orders.fileno()] if self._shared is not None else []
        return [self._socket.fileno(), *self._running, *shared]

    def handle(self, ready: list[int]) -> None:
        """Deal with those of `watched` that are ready to be read."""
        # The shared process first, because it may be free for a module that is requested. Requests
        # last: they open descriptors, which may get the numbers of closed ones.
        if self._shared is not None and self._shared.process.orders.fileno() in ready:
            self._receive(self._shared)
        for descriptor in set(ready) & set(self._running):
            self._finish(descriptor)
        if self._socket.fileno() in ready:
            self._take()

    def close(self) -> None:
        """Release the processes that wait for a module: none will come."""
        shared, self._shared = self._shared, None
        if shared is not None:
            # One that still runs a module ends after it.
            shared.process.orders.close()
        if shared is not None and shared.is_free:
            os.waitpid(shared.process.pid, 0)

    def _take(self) -> None:
        message, rights, _, _ = self._socket.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4 * 4))
        if not rights:
            return
        given = array.array("i", rights[0][2])
        file, out, err, ended = given
        pid = self._start(message, given)
        for descriptor in (file, out, err):
            os.close(descriptor)
        self._running[os.pidfd_open(pid)] = pid, ended

    def _start(self, message: bytes, given: array.array[int]) -> int:
        shared = self._shared
        if shared is not None and shared.key == message and self._is_free(shared):
            shared.is_free = False
            if shared.process.run(message, given):
                return shared.process.pid
            self._shared = None
        process = _fork()
        while not process.run(message, given):
            process = _fork()
        if message == MODULE or self._shared is not None:
            # Only one waits for the next module that may share it. Without its socket this one
            # cannot: it ends with its module.
            process.orders.close()
        else:
            self._shared = _Shared(process, message)
        return process.pid

    def _is_free(self, shared: _Shared) -> bool:
        """Return whether the shared process takes a module; wait if it is about to report it.

        It reports the end of its module before the play can read the result, and so before the
        play requests another module.
        """
        while not shared.is_free and self._shared is shared:
            try:
                self._receive(shared, 0 if shared.is_ending else socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
        return shared.is_free and self._shared is shared

    def _receive(self, shared: _Shared, flags: int = 0) -> None:
        """Note what the shared process reports: that its module ends, or that it takes another."""
        try:
            report = shared.process.orders.recv(MESSAGE_BYTES, flags)
        except ConnectionError:
            report = b""
        if report == ENDING:
            shared.is_ending = True
        elif report == READY:
            self._release(shared.process.pid)
            shared.is_free, shared.is_ending = True, False
        else:
            self._forget_shared()

    def _release(self, pid: int) -> None:
        """Forget the call of a shared process, which has reported the status of its module."""
        ((descriptor, ended),) = (
            (descriptor, ended)
            for descriptor, (process, ended) in self._running.items()
            if process == pid
        )
        del self._running[descriptor]
        os.close(ended)
        os.close(descriptor)

    def _forget_shared(self) -> None:
        """Take no more modules to the shared process, which ends."""
        shared, self._shared = self._shared, None
        assert shared is not None
        shared.process.orders.close()
        if shared.is_free:
            os.waitpid(shared.process.pid, 0)

    def _finish(self, process: int) -> None:
        pid, ended = self._running.pop(process)
        _, status = os.waitpid(pid, 0)
        if self._shared is not None and self._shared.process.pid == pid:
            self._shared.process.orders.close()
            self._shared = None
        with contextlib.suppress(BrokenPipeError):
            os.write(ended, STATUS.pack(status))
        os.close(ended)
        os.close(process)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A process that waits for its module."""

    pid: int
    orders: socket.socket

    def run(self, message: bytes, descriptors: array.array[int]) -> bool:
        """Have it run a module; False if it has been killed meanwhile."""
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            self.orders.sendmsg([message], rights)
        except OSError:
            self.orders.close()
            os.waitpid(self.pid, 0)
            return False
        return True


@dataclass(slots=True)
class _Shared:
    """A process that runs modules with the same key, one after the other."""

    process: _Waiting
    key: bytes
    is_free: bool = False
    is_ending: bool = False
    """Whether its module has ended and it is put back, or exits."""


def _fork() -> _Waiting:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = fork()
    if not pid:
        # ansible-core reads its settings when it is imported, so not before it is loaded.
        from operator_runner.ansible.forkserver.module_process import become_module

        become_module(far)
    far.close()
    return _Waiting(pid, near)
