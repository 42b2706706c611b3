"""A run's supervisor: ansible-runner in a fork, which starts the play as a further fork.

It reads the terminal of the play, sends its events to the operator, and ends the whole process
tree on SIGTERM or when the operator closes the run's socket.

Before a run it discovers what the API server serves, for this run and later ones. kubernetes.core
caches its discovery in files. A run could change those that it passes on, so they are written by a
process in which nothing of a run is loaded and that reads nothing of a run, to a directory that
runs cannot access; see `temp_dirs`. It has a sandbox as runs have.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import dataclasses
import json
import os
import signal
import socket
import tempfile
import termios
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from ansible_runner import runner as ansible_runner_module

from operator_runner.ansible.forkserver.forks import begin_process, fork, use_environment
from operator_runner.ansible.forkserver.messages import Message, wait_readable
from operator_runner.ansible.forkserver.module_calls import ModuleForks
from operator_runner.ansible.forkserver.play import become_play
from operator_runner.ansible.patches.replacing import replace
from operator_runner.ansible.patches.selection import PatchSelection
from operator_runner.ansible.process_tree import (
    END_SIGNALS,
    adopt_orphans,
    die_with_parent,
    end_run,
)
from operator_runner.ansible.runner import play as run_play
from operator_runner.ansible.runner import write_line
from operator_runner.ansible.sandbox import landlock
from operator_runner.ansible.sandbox.isolation import Sandbox

_LONGEST_SECONDS = 30


def discover(
    task: dict[str, Any], environment: dict[str, str], sandbox: Sandbox, *, scoped: bool
) -> bool:
    """Write the cache files of API versions in a process of its own; return whether it could.

    `task` has `directory`, `versions`, such as apps/v1, and the text of the `kubeconfig`;
    `environment` and `sandbox` are those of the run. See `Sandbox.enter` for `scoped`.
    """
    pid = fork()
    if not pid:
        status = 1
        with contextlib.suppress(BaseException):
            begin_process()
            signal.alarm(_LONGEST_SECONDS)
            dataclasses.replace(sandbox, visible=(task["directory"],)).enter(scoped=scoped)
            _discover(task, environment)
            status = 0
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def _discover(task: dict[str, Any], environment: dict[str, str]) -> None:
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as clients

    os.chdir("/")
    use_environment(environment)
    tempfile.tempdir = task["directory"]
    kubeconfig = Path(task["directory"], "kubeconfig")
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(task["kubeconfig"])
    client = clients.get_api_client(kubeconfig=str(kubeconfig)).client
    kubeconfig.unlink()
    for version in task["versions"]:
        # One that is no longer served is not found.
        client.resources.search(api_version=version)


_CHUNK_BYTES = 64 * 1024


def supervise(
    orders: socket.socket,
    environment: dict[str, str],
    scope: dict[str, Any] | None,
    patches: PatchSelection,
) -> NoReturn:
    """Run what `orders` gives, in a process just forked for it, and exit.

    It receives one message when there is a run: the description by `run_spec.run_spec` as JSON, and
    the socket to the operator. `environment` is the one that everything was loaded with;
    `scope` are the arguments of `landlock.scope_signals`; None: it is not called.
    """
    server = os.getppid()
    os.setsid()
    atexit._clear()  # the server's own are not ours to run
    adopt_orphans()
    die_with_parent(server)
    for number in END_SIGNALS:
        signal.signal(number, lambda *_: end_run())
    try:
        if scope is not None:
            # Before the play is forked: the two, and modules, may signal each other.
            landlock.scope_signals(**scope)
        play = ForkedPlay(environment, patches)
    except OSError as error:
        _refuse(orders, error)
    with Message(orders) as message:
        if message.attached is None:
            os._exit(0)  # the run was not requested
        spec, operator = message.for_supervisor(), message.attached
    patches.install("play-fork", spec, operator, play)
    _supervise(spec, operator, scoped=scope is not None)


def _enter(written: dict[str, Any], *, scoped: bool) -> None:
    sandbox = Sandbox.from_json(written)
    if sandbox.isolation.signals and not scoped:
        raise OSError("cannot prevent the run from sending signals to other processes")
    sandbox.enter(scoped=scoped)


def _refuse(orders: socket.socket, error: OSError) -> NoReturn:
    """Answer the next run that no process could be forked for it."""
    with Message(orders) as message:
        if message.attached is not None:
            write_line(message.attached.makefile("w", encoding="utf-8"), {"refused": str(error)})
    os._exit(1)


def _supervise(spec: dict[str, Any], operator: socket.socket, *, scoped: bool) -> NoReturn:
    lines = operator.makefile("w", encoding="utf-8")
    task = spec["discovery"]
    found = task is not None and discover(
        task, {**os.environ, **spec["envvars"]}, Sandbox.from_json(spec["sandbox"]), scoped=scoped
    )
    write_line(lines, {"pid": os.getpid(), "discovered": found})
    try:
        _enter(spec["sandbox"], scoped=scoped)
        left = run_play(spec, lines)
    except BaseException:  # noqa: BLE001 (the last line of a process)
        write_line(lines, {"error": traceback.format_exc()})
        os._exit(1)
    # The status makes the server look for processes that the run has left.
    os._exit(1 if left else 0)


def install_terminal(spec: dict[str, Any], operator: socket.socket, play: ForkedPlay) -> None:
    """Make ansible-runner use the forked play instead of a program started by pexpect."""

    def spawn(command: str, args: list[str], **how: Any) -> ForkedPlay:
        run = {"command": [command, *args], "cwd": how["cwd"], "environment": how["env"]}
        play.begin({**run, "sandbox": spec["sandbox"]}, operator)
        return play

    pexpect = ansible_runner_module.pexpect
    terminal = SimpleNamespace(spawn=spawn, EOF=pexpect.EOF, exceptions=pexpect.exceptions)
    replace("ansible_runner.runner:pexpect", terminal)


class ForkedPlay:
    """A play in a fork with a terminal; ansible-runner uses it as a `pexpect.spawn`."""

    logfile_read: Any
    """Receives the output of the play; set by ansible-runner."""
    _operator: socket.socket

    def __init__(self, preloaded: dict[str, str], patches: PatchSelection) -> None:
        """Fork the process of the play, which waits for `begin`.

        `preloaded` is the environment that everything was loaded with, `patches` are those that
        the play applies.
        """
        self._modules = ModuleForks()
        self.exitstatus: int | None = None
        self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._terminal, slave = os.openpty()
        reader, self._orders = os.pipe()
        self.pid = fork()
        if not self.pid:
            os.close(self._terminal)
            os.close(self._orders)
            _use_terminal(slave)
            become_play(os.fdopen(reader, "rb"), preloaded, self._modules.requests, patches)
        os.close(slave)
        os.close(reader)
        os.set_blocking(self._terminal, False)
        self._process = os.pidfd_open(self.pid)

    def begin(self, run: dict[str, Any], operator: socket.socket) -> None:
        """Start the play of a run, see `become_play`; it ends when `operator` closes."""
        self._operator = operator
        with os.fdopen(self._orders, "wb") as orders:
            orders.write(json.dumps(run).encode())

    def isalive(self) -> bool:
        """Return whether the play still has to be waited for."""
        return not self._ended

    def expect(self, patterns: object, **_options: object) -> int:
        """Read to the end. Nothing else is expected, because there are no password prompts."""
        del patterns
        watched: list[Any] = [self._terminal, self._process, self._operator]
        while not self._ended:
            ready = wait_readable([*watched, *self._modules.watched()])
            self._modules.handle(ready)
            if self._operator in ready:
                end_run()
            if self._terminal in ready and not self._read():
                watched.remove(self._terminal)
            if self._process in ready:
                self._finish()
        return 0

    def close(self) -> None:
        """Close the terminal."""
        os.close(self._terminal)
        os.close(self._process)

    def _read(self) -> bool:
        """Pass on output; return False at the end, or if there is no output now."""
        try:
            data = os.read(self._terminal, _CHUNK_BYTES)
        except OSError:
            # Linux returns EIO once no process has the terminal open, EAGAIN if it is quiet.
            return False
        self.logfile_read.write(self._decoder.decode(data))
        return bool(data)

    def _finish(self) -> None:
        # A daemon of the play may keep the terminal open for ever: do not wait for its end.
        while self._read():
            pass
        _, status = os.waitpid(self.pid, 0)
        self._ended = True
        # None for a signal, as pexpect has it.
        self.exitstatus = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def _use_terminal(slave: int) -> None:
    settings = termios.tcgetattr(slave)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    termios.tcsetwinsize(slave, (24, 80))
    os.login_tty(slave)
