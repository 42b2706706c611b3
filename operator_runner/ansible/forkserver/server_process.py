"""Control the fork server from the operator: start, pass runs, retire, stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import structlog

from operator_runner.ansible.child_process import end_tree
from operator_runner.ansible.forkserver.messages import MAX_MESSAGE_BYTES, message, send
from operator_runner.ansible.patches.selection import Mismatch
from operator_runner.ansible.run_spec import common_environment
from operator_runner.ansible.sandbox.isolation_probe import can_mount, signals_scoped
from operator_runner.ansible.temp_dirs import server_dir
from operator_runner.core.ansible_core import check_core
from operator_runner.core.async_tasks import finish_in_thread
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json
from operator_runner.core.settings import AnsibleSettings

_log = structlog.get_logger(__name__)

_GRACE_SECONDS = 10.0
"""Time between asking it to end and SIGKILL; more than the grace period of a run."""
_EXIT_SECONDS = 1.0
"""Time between the end of its answers and its exit; its sockets close first."""
# -P: modules are not looked for in the working directory, as ansible-playbook does not either.
_PROGRAM = (sys.executable, "-P", "-m", "operator_runner.ansible.forkserver.server")


class ForkServerKilled(RunError):
    """A signal ended a fork server while it loaded Ansible; another one may succeed."""


@dataclass(slots=True)
class ForkServer:
    """A fork server that is ready."""

    _process: asyncio.subprocess.Process
    _control: socket.socket
    _runs: int = 0
    _retired: bool = False

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.returncode is not None

    async def order(self, spec: bytes, lines: socket.socket) -> None:
        """Have a run forked that writes to `lines`.

        Raises BrokenPipeError or ConnectionResetError if the server is gone, and other subclasses
        of OSError if the message cannot be sent.
        """
        try:
            await finish_in_thread(send, self._control, spec, lines)
        except OSError as error:
            if self._control.fileno() < 0:  # another run has retired the server meanwhile
                raise BrokenPipeError(*error.args) from error
            raise

    def check_files(self) -> None:
        """Have it compare the files that it has loaded with the disk; the next run need not wait.

        Raises OSError if the server is gone.
        """
        with contextlib.suppress(BlockingIOError):  # it has much to do: the run waits
            self._control.send(message({"check_files": True}, {}), socket.MSG_DONTWAIT)

    def began(self) -> None:
        """Count a run that begins."""
        self._runs += 1

    def ended(self) -> None:
        """Count the end of a run."""
        self._runs -= 1
        self._close_if_done()

    def retire(self) -> None:
        """Take no more runs; end with the last one."""
        self._retired = True
        self._close_if_done()

    async def wait_for_exit_reason(self) -> str:
        """Return how it has ended, or that it has not; a run has got no answer from it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                await self._process.wait()
        return exit_reason(self._process.returncode, self._last_message())

    def _last_message(self) -> str:
        """Return what it has sent before it ended, if anything."""
        for _ in range(2):  # the first call fails if it has left a message of ours unread
            with contextlib.suppress(OSError):
                return self._control.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT).decode()
        return ""

    async def stop(self) -> int:
        """End it and all its runs; by force if they do not end. Return its exit status."""
        try:
            # Before the socket is closed, after which daemons of its runs would continue.
            await end_tree(self._process, _GRACE_SECONDS)
        finally:
            self._control.close()
        return await self._process.wait()

    def _close_if_done(self) -> None:
        if self._retired and not self._runs:
            self._control.close()


def exit_reason(status: int | None, report: str) -> str:
    """Describe why a server has not answered, by its exit status and its last message.

    `status` is as in asyncio: negative for a signal, None for a server that runs.
    """
    if status is None:
        return "the process of a run was killed before it began"
    if status < 0:
        return f"the fork server was killed by {signal.Signals(-status).name}"
    return f"the fork server exited with status {status}" + (f": {report}" if report else "")


async def start_server(
    ansible: AnsibleSettings,
    contents: Sequence[Path] = (),
    names: int | None = None,
    work_dir: Path | None = None,
) -> ForkServer:
    """Start a fork server and wait until everything is loaded. Raises RunError with its reason.

    This is ForkServerKilled after a signal, such as SIGKILL where memory is low. `contents` are the
    roles and playbooks that it will run. `names` is a descriptor to which it writes the reserved
    names of Ansible, if it lists them. It loads Ansible in a directory below `work_dir`, which runs
    cannot write to, by default below TMPDIR.
    """
    check_core()
    environment = common_environment(ansible)
    # The server creates it and is signalled when we end: it is removed even if we are killed.
    scratch = server_dir(Path(tempfile.gettempdir()) if work_dir is None else work_dir)
    orders: Json = {
        "parent": os.getpid(),
        "envvars": environment,
        "started": time.monotonic(),
        "scratch": str(scratch),
        "disabled_patches": list(ansible.disabled_patches),
        "contents": [str(path) for path in contents],
        "names": names,
        "scope": await asyncio.to_thread(_scope) if ansible.isolate_runs else None,
    }
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, _removed(scratch), tempfile.TemporaryFile() as complaints:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM,
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=complaints,
            stderr=complaints,
            pass_fds=[theirs.fileno(), *([] if names is None else [names])],
            env={**os.environ, **environment},
            start_new_session=True,
        )
        theirs.close()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(end_tree, process, _GRACE_SECONDS)
            undo.callback(_close, ours)
            answer = b""
            with contextlib.suppress(ConnectionError):  # it has ended
                await asyncio.to_thread(ours.send, json.dumps(orders).encode())
                answer = await asyncio.to_thread(ours.recv, MAX_MESSAGE_BYTES)
            if not answer:
                status = await process.wait()
                error = ForkServerKilled if status < 0 else RunError
                raise error(f"the fork server could not load Ansible: {_last_line(complaints)}")
            _report(json.loads(answer))
            undo.pop_all()
    return ForkServer(process, ours)


def _report(mismatches: list[Json]) -> None:
    """Log each patch that is not applied. Raises RunError if runs need it."""
    for found in (Mismatch(**each) for each in mismatches):
        if found.needs_cold_runs:
            raise RunError(str(found))
        _log.warning(
            "Patch is not applied; runs are slower",
            patch=found.patch,
            symbol=found.symbol,
            version=found.version,
            difference=found.difference,
            dependents=found.dependents,
        )


def _scope() -> Json | None:
    """Return how a run is kept from sending signals to others; None where that is not possible."""
    return {"paths_follow": not can_mount()} if signals_scoped() else None


def _close(control: socket.socket) -> None:
    # close() alone does not wake a thread that waits for a message.
    with contextlib.suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    control.close()


@contextlib.contextmanager
def _removed(scratch: Path) -> Iterator[None]:
    """Remove the scratch directory of the server, which may be killed before it does."""
    try:
        yield
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _last_line(complaints: IO[bytes]) -> str:
    complaints.seek(0)
    text = complaints.read().decode(errors="replace").strip()
    return text.splitlines()[-1] if text else "no reason given"
