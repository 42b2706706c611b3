"""The fork server: one thread that waits for runs and forks a supervisor for each.

Started by `launcher.py` as `python -m operator_runner.ansible.forkserver.server FD`, where FD is a
socket. The operator sends one JSON object per message; the message of a run has the socket for its
output attached. When the operator closes its end, all runs end and the server exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

import psutil

from operator_runner.ansible.forkserver.compiled_templates import RoleFiles, compile_file
from operator_runner.ansible.forkserver.forks import call_with_room, fork, open_streams
from operator_runner.ansible.forkserver.freshness import Freshness, preloaded_paths
from operator_runner.ansible.forkserver.messages import (
    MAX_MESSAGE_BYTES,
    Message,
    send,
    wait_readable,
)
from operator_runner.ansible.forkserver.preload import preload, prepare_for_many_forks
from operator_runner.ansible.patches.selection import PatchSelection
from operator_runner.ansible.process_tree import (
    END_SIGNALS,
    adopt_orphans,
    become_reaper,
    die_with_parent,
    end_descendants,
    has_children,
    signal_descendants,
)
from operator_runner.ansible.runner import run_environment, write_line

_ORPHANS_SECONDS = 1.0
"""Time for the processes of a killed run."""
_FEW_RUNS = 3
"""Runs that a server executes before it is prepared for more. Where edits are far apart, Ansible is
loaded for one or two runs and then unloaded."""
_IDLE_SECONDS = 0.1
"""Idle seconds after which the next run's processes are forked beforehand."""


def main() -> None:
    """Serve until the operator ends."""
    control = socket.socket(fileno=int(sys.argv[1]))
    orders = json.loads(control.recv(MAX_MESSAGE_BYTES))
    die_with_parent(orders["parent"])
    adopt_orphans()
    with _scratch(orders["scratch"]) as scratch:
        environment = run_environment(orders["envvars"], scratch)
        contents = [Path(path) for path in orders["contents"]]
        children: set[int] = set()

        def list_names() -> None:
            if orders["names"] is not None:
                output = os.fdopen(orders["names"], "w", encoding="utf-8")
                # If no fork is possible now, the operator lists them when it needs them.
                with output, contextlib.suppress(OSError):
                    children.add(_list_names(output, contents))

        patches, mismatches = preload(
            environment, scratch, orders["disabled_patches"], contents, list_names
        )
    open_streams()
    freshness = Freshness(preloaded_paths())
    server = Server(
        control,
        environment,
        freshness,
        orders["started"],
        scope=orders["scope"],
        patches=patches,
        children=children,
    )
    control.send(json.dumps([asdict(each) for each in mismatches]).encode())
    try:
        call_with_room(server.serve)
    except Exception as error:
        # It has seen no data of runs, which it only passes on.
        control.send(_described(error).encode())
        raise


@contextlib.contextmanager
def _scratch(path: str) -> Iterator[str]:
    """Make a directory that is removed at the end of the block, and when the operator dies.

    The operator removes it as well, in case this process is killed.
    """

    def leave(*_: object) -> NoReturn:
        shutil.rmtree(path, ignore_errors=True)
        os._exit(1)

    for number in END_SIGNALS:
        signal.signal(number, leave)
    os.mkdir(path, 0o700)  # noqa: PTH102
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _list_names(output: TextIO, contents: Sequence[Path]) -> int:
    """Fork a process that writes the reserved names of Ansible; return its pid."""
    server = os.getpid()
    pid = fork()
    if not pid:
        try:
            die_with_parent(server)
            os.dup2(2, 1)  # nothing is written to the terminal that has been opened for loading
            # Not at module level: ansible-core reads its settings when it is imported.
            from operator_runner.ansible.list_reserved_names import list_names

            with output:
                json.dump(list_names(contents), output)
            os._exit(0)
        except BaseException:  # noqa: BLE001 (a fork must not go on as a second server)
            traceback.print_exc()
        os._exit(1)
    return pid


class _Spare(NamedTuple):
    """The supervisor of the next run, and where it waits for it."""

    pid: int
    orders: socket.socket


class Server:
    """The runs in progress, and the socket that requests them."""

    def __init__(
        self,
        control: socket.socket,
        environment: dict[str, str],
        freshness: Freshness,
        started: float,
        *,
        scope: dict[str, Any] | None,
        patches: PatchSelection,
        children: Collection[int],
    ) -> None:
        """`environment` is the one that everything was loaded with, from the time `started` on.

        `children` are processes that were forked meanwhile. `scope` are the arguments of
        `landlock.scope_signals`; None: it is not called.
        """
        self._operator = os.getppid()
        self._scope = scope
        self._patches = patches
        self._control = control
        self._environment = environment
        self._freshness = freshness
        self._compared = started
        """Time after which the files were loaded, or were still those that are loaded."""
        self._runs = {*children}
        self._spare: _Spare | None = None
        self._is_stale = False
        self._strays: set[int] = set()
        self._handed_over = 0
        self._is_prepared = False
        self._role_files = _role_files(patches)

    def serve(self) -> None:
        """Fork as ordered and reap what ends, until the control socket closes."""
        wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in END_SIGNALS:
            signal.signal(number, lambda *_: self._end(with_daemons=True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._reap()
        while True:
            ready = wait_readable([self._control, wake_reader], self._idle_timeout())
            if not ready and self._role_files.is_pending:
                self._role_files.step()
            elif not ready:
                if not self._handed_over:
                    # Loaded at the operator's start, not for a run: many runs will follow. Later,
                    # the runs in progress would keep the memory as it was before.
                    self._prepare()
                # If no fork is possible, the next run reports it.
                with contextlib.suppress(OSError):
                    self._spare = self._fork()
            if wake_reader in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_reader, 4096)
                self._reap()
            if self._control in ready and not self._take():
                self._end()

    def _idle_timeout(self) -> float | None:
        """Return the seconds to wait for a request before background work; None: no limit.

        Nothing is prepared after the first run: where edits are far apart, no other one follows.
        """
        if self._handed_over == 1:
            return None
        if self._role_files.is_pending:
            return 0.0
        return _IDLE_SECONDS if self._spare is None and not self._is_stale else None

    def _take(self) -> bool:
        """Give the next run to a supervisor; return False if the operator has closed the socket."""
        with Message(self._control) as message:
            order = message.for_server() if message.whole else {}
            if order.get("check_files"):
                self._changed_file(time.monotonic())
                return True
            if message.attached is None:
                return False
            with message.attached as operator:
                changed = self._changed_file(order["requested_at"])
                if changed is not None:
                    self._retire()
                    _answer(operator, {"stale": changed})
                    return True
                try:
                    self._hand_over(message.whole, operator)
                except OSError as error:
                    # A failed fork concerns only this run.
                    _answer(operator, {"refused": str(error)})
                self._handed_over += 1
                self._role_files.note(Path(order["content"]), map(Path, order["roles"]))
        return True

    def _changed_file(self, requested_at: float) -> str | None:
        """Return a loaded file that has changed on disk before a run was requested, or None.

        Nothing is compared for a run that was requested before loading began: what it gets is
        newer than its request, and files that change all the time do not delay it for ever.
        """
        if requested_at <= self._compared:
            return None
        now = time.monotonic()
        changed = self._freshness.changed()
        if changed is None:
            self._compared = now
        return changed

    def _retire(self) -> None:
        """Accept no further run; those in progress continue."""
        self._is_stale = True
        self._drop_spare()

    def _drop_spare(self) -> None:
        """End the processes that wait for the next run, which gets new ones."""
        if self._spare is not None:
            self._spare.orders.close()
            self._spare = None

    def _hand_over(self, message: memoryview, operator: socket.socket) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.closing(spare.orders), contextlib.suppress(OSError):
                send(spare.orders, message, operator)
                return
        with contextlib.closing(self._fork().orders) as orders:
            send(orders, message, operator)

    def _prepare(self) -> None:
        """Prepare for many forks, once."""
        if not self._is_prepared:
            prepare_for_many_forks(self._patches)
            self._is_prepared = True

    def _fork(self) -> _Spare:
        """Fork a supervisor with its play."""
        if self._handed_over >= _FEW_RUNS:
            self._prepare()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = fork()
        if not pid:
            ours.close()
            try:
                self._become_supervisor(theirs)
            except BaseException:  # noqa: BLE001 (a fork must not go on as a second server)
                traceback.print_exc()
            os._exit(1)
        theirs.close()
        self._runs.add(pid)
        return _Spare(pid, ours)

    def _become_supervisor(self, orders: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        self._control.close()
        # Not at module level: ansible-core reads its settings when it is imported.
        from operator_runner.ansible.forkserver.supervisor import supervise

        supervise(orders, self._environment, self._scope, self._patches)

    def _reap(self) -> None:
        """Record ended runs; end the processes that a killed run left behind."""
        killed = left = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if not pid:
                break
            if pid in self._runs:
                self._runs.discard(pid)
                killed = killed or os.WIFSIGNALED(status)
                left = left or status != 0
            else:
                left = True  # a daemon: its children are children of this process now
            self._strays.discard(pid)
        if killed:
            self._end_orphans()
        elif left or self._strays:
            # Daemons of a successful run continue, as they do after ansible-playbook, with
            # their children.
            self._strays |= {child.pid for child in self._orphans()}

    def _orphans(self) -> list[psutil.Process]:
        """Return the processes of ended runs, which the kernel made children of this process."""
        known = self._runs | self._strays
        return [child for child in psutil.Process().children() if child.pid not in known]

    def _end_orphans(self) -> None:
        """End the processes that a killed run left, with all descendants, for a limited time.

        What forks faster than it is ended goes on as a stray, and other runs begin.
        """
        ends = time.monotonic() + _ORPHANS_SECONDS
        while orphans := self._orphans():
            for orphan in orphans:
                if time.monotonic() > ends:
                    self._strays |= {each.pid for each in orphans}
                    return
                with contextlib.suppress(psutil.NoSuchProcess):
                    if orphan.status() != psutil.STATUS_ZOMBIE:
                        signal_descendants(orphan.pid, signal.SIGKILL)
                        orphan.kill()
            psutil.wait_procs(orphans, timeout=0.1)

    def _end(self, *, with_daemons: bool = False) -> NoReturn:
        """End all runs, and with the operator what runs have left behind."""
        self._retire()
        for pid in self._runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._runs:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if with_daemons:
            end_descendants(os.getpid(), 0.0)
        elif has_children():
            become_reaper(self._operator)
        os._exit(0)


def _role_files(patches: PatchSelection) -> RoleFiles:
    # Not before everything is loaded: ansible-core reads its settings when it is imported.
    from ansible import constants

    preparations = [compile_file] if "compiled-templates" in patches else []
    return RoleFiles(preparations, [Path(path) for path in constants.DEFAULT_ROLES_PATH])


def _answer(operator: socket.socket, answer: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # the operator has closed it
        write_line(operator.makefile("w", encoding="utf-8"), answer)


def _described(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = "".join(traceback.format_exception_only(error)).strip()
    return f"{text} ({Path(place.filename).name}:{place.lineno})"


if __name__ == "__main__":
    main()
