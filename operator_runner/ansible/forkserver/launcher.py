"""The warm launcher: the fork server forks each run; a new server replaces an outdated one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from operator_runner.ansible.child_process import end_tree, last_line
from operator_runner.ansible.cold.launcher import ColdLauncher, ColdRun
from operator_runner.ansible.event_stream import MAX_LINE_BYTES, LocalRun
from operator_runner.ansible.forkserver.messages import MAX_MESSAGE_BYTES, message, send
from operator_runner.ansible.libc import trim_heap
from operator_runner.ansible.patches.selection import Mismatch
from operator_runner.ansible.process_tree import end_descendants
from operator_runner.ansible.run_spec import common_environment, run_spec
from operator_runner.ansible.rundir import RunDir, server_dir
from operator_runner.ansible.sandbox.isolation_probe import can_mount, signals_scoped
from operator_runner.core.ansible_core import check_core
from operator_runner.core.async_tasks import finish_in_thread
from operator_runner.core.errors import RunError
from operator_runner.core.model import Json, RunRequest
from operator_runner.core.settings import AnsibleSettings, ServerStart

_log = structlog.get_logger(__name__)

_END_SECONDS = 10.0
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
            await end_tree(self._process, _END_SECONDS)
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
    with theirs, contextlib.ExitStack() as end, tempfile.TemporaryFile() as complaints:
        # The server may be killed before it does.
        end.callback(shutil.rmtree, scratch, ignore_errors=True)
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
            undo.push_async_callback(end_tree, process, _END_SECONDS)
            undo.callback(_close, ours)
            answer = b""
            with contextlib.suppress(ConnectionError):  # it has ended
                await asyncio.to_thread(ours.send, json.dumps(orders).encode())
                answer = await asyncio.to_thread(ours.recv, MAX_MESSAGE_BYTES)
            if not answer:
                status = await process.wait()
                error = ForkServerKilled if status < 0 else RunError
                reason = last_line(complaints) or "no reason given"
                raise error(f"the fork server could not load Ansible: {reason}")
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


_GRACE_SECONDS = 10.0
"""Time between asking a run to end and SIGKILL; more than the grace period of the run itself."""

_MAX_SERVERS = 3
"""Servers that are tried for a run: one may be killed, or outdated because a file changed."""
_ROLE = re.compile(r"(/.{1,500})/(?:tasks|handlers)/")
"""Directory of the role of a task, at the begin of the task's path."""
_MAX_ROLES = 100
"""Roles of a run that are noted."""
_RETRY_SECONDS = 60.0
"""Pause before another server is tried where one could not load Ansible."""


class _CannotLoad(RunError):
    """No server can load Ansible now, such as in the middle of an upgrade of its files."""


class WarmRun(LocalRun):
    """A run in a fork."""

    def __init__(self, stream: asyncio.StreamReader, roles: set[str]) -> None:
        """Add to `roles` the directories of those whose tasks it runs."""
        super().__init__(stream)
        self._roles = roles

    async def events(self) -> AsyncIterator[Json]:
        """See `LocalRun`."""
        async for event in super().events():
            data = event.get("event_data") or {}
            role = _ROLE.match(str(data.get("task_path")))
            if role is not None and len(self._roles) < _MAX_ROLES:
                self._roles.add(role[1])
            yield event

    async def wait(self) -> int:
        """Return the exit status of ansible-playbook. Raises RunError if it never ran."""
        if self.exit_status is None:
            raise RunError(
                "the run's process was killed before the play had ended, often because memory is"
                " short; raise the memory limit of the operator, or lower"
                " --max-concurrent-reconciles"
            )
        return self.exit_status


class IdleTimer:
    """Calls a function when nothing has been in use for a time; None: never."""

    def __init__(self, timeout: timedelta | None, call: Callable[[], None]) -> None:
        """Take the function; `start` and the end of each use start the timer."""
        self._timeout, self._call = timeout, call
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Mark a use, from the beginning of the block to its end."""
        self.stop()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.start()

    def start(self) -> None:
        """Restart the timer, unless something is in use."""
        self.stop()
        if self._timeout is not None and not self._users:
            seconds = self._timeout.total_seconds()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._call)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()


class WarmLauncher:
    """Starts runs as forks of a process that has everything loaded."""

    def __init__(
        self,
        ansible: AnsibleSettings,
        started: Callable[[ServerStart], None],
        contents: Sequence[Path] = (),
        names: int | None = None,
        work_dir: Path | None = None,
    ) -> None:
        """Take settings, roles and playbooks of all runs, and the directory of their files.

        `started` is called with the reason of each start of a server. The first one writes the
        reserved names of Ansible to the descriptor `names`, which is closed then.
        """
        self._ansible = ansible
        self._contents = contents
        self._started = started
        self._names = names
        self._work_dir = work_dir
        self._roles: dict[Path, set[str]] = {}
        """The roles that the last run of each role or playbook had."""
        self._why: ServerStart = "start"
        self._server: ForkServer | None = None
        self._retired: list[ForkServer] = []
        """Servers that take no more runs; they exit after the last one."""
        self._starting = asyncio.Lock()
        self._unloading = IdleTimer(ansible.fork_server_idle_timeout, self._unload)
        self._cold_until = 0.0
        """Time until which runs are cold and no server is tried."""

    async def open(self) -> None:
        """Start a server unless one is ready. Raises RunError if it cannot be started."""
        async with self._starting:
            if self._server is not None and self._server.gone:
                _log_exit(await self._server.wait_for_exit_reason())
                await self._server.stop()
                self._server, self._why = None, "exited"
            if self._server is None:
                self._server = await self._load()
                self._started(self._why)
                self._unloading.start()

    async def _load(self) -> ForkServer:
        """Start a server; another one in place of one that is killed while it loads."""
        for _ in range(_MAX_SERVERS - 1):
            with contextlib.suppress(ForkServerKilled):
                return await self._start_one()
        return await self._start_one()

    async def _start_one(self) -> ForkServer:
        names, self._names = self._names, None
        try:
            return await start_server(self._ansible, self._contents, names, self._work_dir)
        finally:
            if names is not None:
                os.close(names)

    async def _reopen(self) -> None:
        """Open a server again. Raises _CannotLoad, with one warning, if plays have to run cold."""
        if time.monotonic() < self._cold_until:
            raise _CannotLoad
        try:
            await self.open()
        except ForkServerKilled:
            raise
        except RunError as error:
            self._cold_until = time.monotonic() + _RETRY_SECONDS
            _log.warning("Running plays cold, each in new processes", error=str(error))
            raise _CannotLoad from error

    async def ready(self) -> None:
        """See `executor.Launcher`; if a server is outdated, `start` replaces it."""
        with self._unloading.use(), contextlib.suppress(_CannotLoad):
            await self._reopen()
            if self._server is not None:
                with contextlib.suppress(OSError):  # it has ended; `start` replaces it
                    self._server.check_files()

    async def close(self) -> None:
        """End all servers and their runs."""
        self._unloading.stop()
        servers = [*self._retired, *([self._server] if self._server else [])]
        await asyncio.gather(*(server.stop() for server in servers))

    @asynccontextmanager
    async def start(self, request: RunRequest, rundir: RunDir) -> AsyncIterator[WarmRun | ColdRun]:
        """Start a run; leaving the block ends its remaining processes.

        It is cold where the loaded files have changed and cannot be loaded again.
        """
        spec = run_spec(request, rundir, self._ansible)
        discovery = spec["discovery"] = rundir.temp_dirs.begin_discovery(request.kubeconfig)
        header = {
            "requested_at": request.requested_at,
            "content": str(request.content.path),
            "roles": sorted(self._roles.get(request.content.path, ())),
            # The part that is the same for every run.
            "sandbox": {**spec["sandbox"], "visible": [], "readable": []},
        }
        with self._unloading.use():
            forking = asyncio.create_task(self._fork(message(header, spec)))
            done = False
            fork: _Fork | None = None
            try:
                fork = await asyncio.shield(forking)
                done = fork.has_discovered
            except asyncio.CancelledError:
                with contextlib.suppress(_CannotLoad):
                    await (await forking).end()
                raise
            except _CannotLoad:
                pass
            finally:
                if discovery is not None:
                    rundir.temp_dirs.end_discovery(discovery, done=done)
            if fork is None:
                async with ColdLauncher(self._ansible).start(request, rundir) as run:
                    yield run
                return
            roles = self._roles[request.content.path] = set()
            try:
                yield WarmRun(fork.reader, roles)
            finally:
                await fork.end()

    async def _fork(self, spec: bytes) -> _Fork:
        """Have the run forked, by a new server if the present one is outdated or has ended.

        Raises RunError if no process can be forked for it.
        """
        for _ in range(_MAX_SERVERS):
            await self._reopen()
            server = self._server
            assert server is not None
            reader, writer, answer = await _ask(server, spec)
            if "pid" in answer:
                server.began()
                return _Fork(server, reader, writer, answer["pid"], answer["discovered"])
            writer.close()
            if "refused" in answer:
                raise RunError(f"the run could not be forked: {answer['refused']}")
            await self._replace(server, answer.get("stale"))
        raise RunError(
            f"run not started: {_MAX_SERVERS} fork servers in a row exited before it began; "
            "raise the memory limit of the operator, or set --executor=cold"
        )

    async def _replace(self, server: ForkServer, changed: str | None) -> None:
        reason = None if changed is not None else await server.wait_for_exit_reason()
        if server is not self._server:
            return  # another run has replaced it
        if reason is None:
            self._why = "changed"
            _log.info("Restarting fork server: a loaded file changed", path=changed)
        else:
            self._why = "exited"
            _log_exit(reason)
        self._retire(server)

    def _unload(self) -> None:
        """End the server, which no run uses; the next run starts another one."""
        if self._server is not None:
            _log.info("Unloaded Ansible: no runs; the next run loads it again")
            self._why = "idle"
            self._retire(self._server)
            # What runs have left goes back to the kernel.
            gc.collect()
            trim_heap()

    def _retire(self, server: ForkServer) -> None:
        self._server = None
        self._retired = [retired for retired in self._retired if not retired.gone]
        self._retired.append(server)
        server.retire()


def _log_exit(reason: str) -> None:
    _log.warning(
        "Fork server exited; starting another",
        reason=reason,
        hint="if it is killed repeatedly, raise the memory limit of the operator",
    )


@dataclass(frozen=True, slots=True)
class _Fork:
    """The supervisor of a run, and the two directions of its socket."""

    server: ForkServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int
    has_discovered: bool
    """Whether the discovery that the run was asked for is done."""

    async def end(self) -> None:
        """End the run: its supervisor does, once our end is closed; by force after a while."""
        try:
            with contextlib.suppress(OSError):
                self.writer.write_eof()
            async with asyncio.timeout(_GRACE_SECONDS):
                while await self.reader.read(64 * 1024):
                    pass
        except TimeoutError:
            await finish_in_thread(end_descendants, self.pid, 0.0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        finally:
            self.writer.close()
            self.server.ended()


async def _ask(
    server: ForkServer, spec: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Json]:
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await server.order(spec, theirs)
    line = await reader.readline()
    return reader, writer, json.loads(line) if line else {}
