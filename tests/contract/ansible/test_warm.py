"""Processes and loaded files of the warm launcher: they end, and they are current."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import ansible_collections.kubernetes.core
import psutil
import pytest
import structlog.testing

from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.executor import AnsibleExecutor, open_launcher
from operator_runner.ansible.forkserver import immortal
from operator_runner.ansible.forkserver import launcher as warm_launcher
from operator_runner.ansible.forkserver.launcher import ForkServer, WarmLauncher, start_server
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import GVK, ObjectRef, RunContent, RunOutcome, RunRequest
from operator_runner.core.settings import AnsibleSettings
from tests.support.processes import is_running, new_nap, sleepers
from tests.support.waiting import eventually

SETTINGS = AnsibleSettings(skip_facts=True)
UNLOADED = replace(SETTINGS, fork_server_idle_timeout=timedelta(seconds=3))
_LOOKUP = """
import sys
import ansible.cli.playbook
from ansible.plugins.lookup import LookupBase

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return [sys.getrefcount(vars(ansible.cli.playbook)) >= sys.getrefcount(None)]
"""
_RUN_AND_NEXT = 2
"""Supervisors of an active run and of the next one, which is forked in advance."""


class Runs:
    """A warm launcher with an executor over it, and roles that the test writes."""

    def __init__(self, scratch: Path, launcher: Any, others: frozenset[int] = frozenset()) -> None:
        self.scratch = scratch
        self.others = others
        """Fork servers of other tests, which are children of this process as well."""
        self.starts: list[str] = []
        """An entry for each reported start of a fork server."""
        self.launcher = launcher
        self.executor = AnsibleExecutor(launcher, RunDirs(scratch / "work"), SETTINGS)

    async def __call__(self, tasks: str, name: str = "a") -> RunOutcome:
        role = self.scratch / "roles" / name
        (role / "tasks").mkdir(parents=True, exist_ok=True)
        (role / "tasks" / "main.yml").write_text(tasks)
        request = RunRequest(
            run_id=secrets.token_hex(4),
            ref=ObjectRef(GVK("example.com", "v1", "Foo"), "default", name),
            content=RunContent(role=role),
            extra_vars={},
            kubeconfig="the token",
            verbosity=0,
            max_artifacts=3,
            timeout=None,
        )
        return await self.executor.run(request, lambda _: None)

    def servers(self) -> list[psutil.Process]:
        """Return the fork servers of this process; their forks have other parents."""
        found = [child for child in psutil.Process().children() if _is_server(child)]
        return [server for server in found if server.pid not in self.others]


@asynccontextmanager
async def _runs(scratch: Path, settings: AnsibleSettings) -> AsyncIterator[Runs]:
    others = _children()
    starts: list[str] = []
    async with open_launcher("warm", settings, starts.append) as launcher:
        assert isinstance(launcher, WarmLauncher)
        runs = Runs(scratch, launcher, others)
        runs.starts = starts
        yield runs


@pytest.fixture
async def runs(tmp_path: Path) -> AsyncIterator[Runs]:
    async with _runs(tmp_path, SETTINGS) as runs:
        yield runs


def _children() -> frozenset[int]:
    """Return the pids of this process's children, fork servers of other tests among them."""
    return frozenset(child.pid for child in psutil.Process().children())


def _is_server(process: psutil.Process) -> bool:
    try:
        return "operator_runner.ansible.forkserver.server" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _by_age(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return processes with the oldest first; a later one may have a smaller pid."""
    return sorted(processes, key=lambda process: (process.create_time(), process.pid))


def _supervisor(server: psutil.Process) -> psutil.Process:
    """Return the supervisor of the run that sleeps; another one waits for the next run."""
    (found,) = (
        child for child in server.children() if any("sleep" in name for name in _names_below(child))
    )
    return found


def _names_below(process: psutil.Process) -> Iterator[str]:
    """Yield the names of its descendants; those of others may exit meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for descendant in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield descendant.name()


async def _killed_while_asleep(runs: Runs, victim: Callable[[], psutil.Process]) -> RunOutcome:
    """Kill a process while a task sleeps; return how the run ended, with nothing left of it."""
    naps = [new_nap() for _ in range(2)]
    tasks = f"""
- shell: setsid sleep {naps[0]} >/dev/null 2>&1 </dev/null &
- command: sleep {naps[1]}
"""
    running = asyncio.create_task(runs(tasks))
    await asyncio.to_thread(eventually, lambda: len(sleepers(*naps)) == 2)
    victim().kill()
    outcome = await running
    await asyncio.to_thread(eventually, lambda: not sleepers(*naps))
    return outcome


async def test_a_killed_server_takes_its_runs_along(runs: Runs) -> None:
    """The run fails with this reason, its daemon ends, and the next run has a new server."""
    before = runs.servers()[0].pid
    outcome = await _killed_while_asleep(runs, lambda: runs.servers()[0])
    assert "killed" in outcome.failures[0].message
    assert (await runs("- debug:\n")).successful
    assert [server.pid for server in runs.servers()] != [before]
    assert runs.starts == ["start", "exited"]


@pytest.mark.slow
async def test_the_log_has_the_reason_why_a_server_exited(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal, or the error of the server; runs have another one."""
    started: list[ForkServer] = []

    async def recorded(ansible: AnsibleSettings, *_: object) -> ForkServer:
        started.append(await start_server(ansible))
        return started[-1]

    monkeypatch.setattr(warm_launcher, "start_server", recorded)
    # Both servers exit; on a busy machine some time after their sockets have closed.
    monkeypatch.setattr(warm_launcher, "_EXIT_SECONDS", 180.0)
    with structlog.testing.capture_logs() as logs:
        (first,) = runs.servers()
        first.kill()
        await asyncio.to_thread(eventually, lambda: not is_running(first))
        assert (await runs("- debug:\n")).successful
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await started[0].order(b"no message of a run", theirs)
        assert (await runs("- debug:\n")).successful
    assert len(started) == 2
    exits = [entry["reason"] for entry in logs if entry["event"].startswith("Fork server exited")]
    assert exits[0] == "the fork server was killed by SIGKILL"
    assert exits[1].startswith("the fork server exited with status 1: ValueError: ")
    assert "(messages.py:" in exits[1]


async def test_a_killed_run_leaves_nothing(runs: Runs) -> None:
    """Where a run's own supervisor dies, the server ends what that has left."""
    server = runs.servers()[0]
    outcome = await _killed_while_asleep(runs, lambda: _supervisor(server))
    assert "killed" in outcome.failures[0].message
    assert runs.servers() == [server]
    assert (await runs("- debug:\n")).successful


async def test_processes_of_a_daemon_survive_other_runs(runs: Runs, tmp_path: Path) -> None:
    """If another run is killed later, the daemon does not count as left by that run."""
    (server,) = runs.servers()
    os.mkfifo(tmp_path / "fifo")
    nap = new_nap()
    daemon = f"until test -e go; do sleep 0.05; done; (setsid sleep {nap} &); cat fifo"
    tasks = f"- shell: cd {tmp_path}; setsid sh -c '{daemon}' >/dev/null 2>&1 </dev/null &\n"
    try:
        assert (await runs(tasks, "daemon")).successful
        (tmp_path / "go").touch()
        await asyncio.to_thread(eventually, lambda: sleepers(nap))
        assert (await runs("- debug:\n")).successful
        await _killed_while_asleep(runs, lambda: _supervisor(server))
        assert sleepers(nap)
    finally:
        for child in server.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # such as one that was kept for a run
                if child.name() in {"sh", "sleep"}:
                    child.kill()


async def test_a_killed_play_is_reported(runs: Runs) -> None:
    """If the play's process dies alone, its supervisor reports it and ends the rest."""
    server = runs.servers()[0]
    outcome = await _killed_while_asleep(runs, lambda: _by_age(_supervisor(server).children())[0])
    assert "killed by a signal" in outcome.failures[0].message


async def test_everything_ends_with_the_operator(tmp_path: Path) -> None:
    """SIGKILL of the process that holds the launcher leaves neither server nor run."""
    nap = new_nap()
    operator = os.fork()
    if not operator:
        # A separate process like the operator; the fork must not continue pytest.
        os.execv(
            psutil.Process().exe(),
            [psutil.Process().cmdline()[0], "-c", _HOLDER, str(tmp_path), f"sleep {nap}"],
        )
    try:
        await asyncio.to_thread(eventually, lambda: sleepers(nap))
        family = psutil.Process(operator).children(recursive=True)
        assert len(family) > 2
    finally:
        os.kill(operator, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, operator, 0)
    await asyncio.to_thread(eventually, lambda: not sleepers(nap))
    await asyncio.to_thread(eventually, lambda: not any(map(is_running, family)))


def test_an_operator_killed_at_its_start_leaves_no_files(tmp_path: Path) -> None:
    """Temporary files of a loading fork server are removed with the operator."""
    temporary, modules = tmp_path / "tmp", tmp_path / "modules"
    temporary.mkdir()
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(_ENDLESS_LOADING)
    operator = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path), "true"],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(modules)},
    )
    eventually(lambda: list(temporary.glob(".server-*/*")))
    (server,) = psutil.Process(operator.pid).children()
    operator.kill()
    operator.wait()
    eventually(lambda: not is_running(server))
    assert list(temporary.iterdir()) == []


async def test_a_changed_file_leads_to_a_new_server(tmp_path: Path) -> None:
    """An active run finishes meanwhile, and the old server ends after it."""
    # A copy of the collection: other workers have loaded the installed one.
    kubernetes = tmp_path / "collections" / "ansible_collections" / "kubernetes" / "core"
    shutil.copytree(ansible_collections.kubernetes.core.__path__[0], kubernetes)
    settings = replace(SETTINGS, collections_path=str(tmp_path / "collections"))
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    others = _children()
    tasks = f"- copy: {{content: '', dest: {begun}}}\n- wait_for: {{path: {gate}}}\n"
    async with open_launcher("warm", settings) as launcher:
        runs = Runs(tmp_path, launcher, others)
        old = runs.servers()[0]
        waiting = asyncio.create_task(runs(tasks, "waiting"))
        await asyncio.to_thread(eventually, begun.exists)
        (kubernetes / "plugins" / "modules" / "k8s_info.py").touch()
        assert (await runs("- debug:\n")).successful
        assert {old.pid} < {server.pid for server in runs.servers()}
        gate.touch()
        assert (await waiting).successful
        await asyncio.to_thread(eventually, lambda: len(runs.servers()) == 1)
        assert runs.servers()[0].pid != old.pid


@pytest.mark.slow
async def test_an_upgrade_that_cannot_be_loaded_makes_runs_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an upgrade, and for good if the new files do not fit; then warm again."""
    searched = tmp_path / "lib"
    searched.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(searched))
    ran = "- stat: {path: /}\n"
    async with open_launcher("warm", SETTINGS) as launcher:
        runs = Runs(tmp_path, launcher, _children())
        broken = searched / "sitecustomize.py"
        broken.write_text(_CANNOT_LOAD)
        with structlog.testing.capture_logs() as logs:
            assert (await runs(ran, "first")).successful
            assert (await runs(ran, "second")).successful
        (cold,) = [entry for entry in logs if "cold" in entry["event"]]
        assert "half an upgrade" in cold["error"]
        broken.unlink()
        monkeypatch.setattr(launcher, "_cold_until", 0.0)
        with structlog.testing.capture_logs() as logs:
            assert (await runs(ran, "third")).successful
        assert not [entry for entry in logs if "cold" in entry["event"]]
        assert isinstance(launcher, WarmLauncher)


_CANNOT_LOAD = """\
import sys

if "operator_runner.ansible.forkserver.server" in sys.orig_argv:
    raise SystemExit("half an upgrade")
"""


async def test_settings_where_the_operator_starts_are_not_those_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ansible.cfg there has no effect, and does not make runs cold."""
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforce_handlers = true\n")
    monkeypatch.chdir(tmp_path)
    tasks = """
- assert:
    that:
      - '"operator_runner.ansible.forkserver.server" in lookup("pipe", "cat /proc/$PPID/cmdline")'
      - not lookup("config", "DEFAULT_FORCE_HANDLERS")
"""
    async with _runs(tmp_path / "scratch", SETTINGS) as runs:
        outcome = await runs(tasks)
    assert outcome.successful, outcome.failures


async def test_a_replaced_server_ends_with_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that only finishes its last run is stopped with the others, and so is that run."""
    searched = tmp_path / "lib"
    searched.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(searched))
    nap, others = new_nap(), _children()
    async with open_launcher("warm", SETTINGS) as launcher:
        runs = Runs(tmp_path, launcher, others)
        sleeping = asyncio.create_task(runs(f"- command: sleep {nap}\n", "sleeping"))
        await asyncio.to_thread(eventually, lambda: sleepers(nap))
        (searched / "new").touch()
        assert (await runs("- debug:\n")).successful
        servers = runs.servers()
        assert len(servers) == 2
    assert not (await sleeping).successful
    assert not any(is_running(server) for server in servers)
    await asyncio.to_thread(eventually, lambda: not sleepers(nap))


async def test_an_idle_server_is_unloaded_until_the_next_run(tmp_path: Path) -> None:
    """A run that takes longer than the timeout is not idle; all processes end after it."""
    async with _runs(tmp_path, UNLOADED) as runs:
        for _ in range(2):
            await asyncio.to_thread(eventually, lambda: not runs.servers())
            starts = len(runs.starts)
            assert (await runs("- command: sleep 5\n- debug:\n")).successful
            assert runs.starts[starts:] == ["idle"]
        family = [each for server in runs.servers() for each in server.children(recursive=True)]
        await asyncio.to_thread(eventually, lambda: not any(map(is_running, family)))


@pytest.mark.slow
async def test_the_timeout_of_a_run_begins_when_ansible_is_loaded_again(tmp_path: Path) -> None:
    """The launcher is not ready before; if no run begins then, Ansible is unloaded again."""
    async with _runs(tmp_path, UNLOADED) as runs:
        for starts in (1, 2):
            await asyncio.to_thread(eventually, lambda: not runs.servers())
            assert len(runs.starts) == starts
            await runs.launcher.ready()
            assert len(runs.starts) == starts + 1
        await asyncio.to_thread(eventually, lambda: not runs.servers())


async def test_runs_that_begin_together_load_ansible_once(tmp_path: Path) -> None:
    """All of them succeed."""
    async with _runs(tmp_path, UNLOADED) as runs:
        await asyncio.to_thread(eventually, lambda: not runs.servers())
        outcomes = await asyncio.gather(*(runs("- debug:\n", name) for name in "abc"))
        assert all(outcome.successful for outcome in outcomes)
        assert len(runs.starts) == 2


async def test_ansible_stays_loaded_without_an_idle_timeout(runs: Runs) -> None:
    """No timer runs after the last run, so that the same server executes the next one."""
    assert (await runs("- debug:\n")).successful
    before = runs.servers()
    await asyncio.sleep(2)
    assert runs.servers() == before
    assert (await runs("- debug:\n")).successful
    assert len(runs.starts) == 1


async def test_a_server_is_prepared_for_many_runs_when_idle_or_after_three(runs: Runs) -> None:
    """One that is loaded for a run is not: preparing takes longer than it saves for a few."""
    plugins = runs.scratch / "roles" / "a" / "lookup_plugins"
    plugins.mkdir(parents=True)
    (plugins / "immortal.py").write_text(_LOOKUP)
    expected = runs.scratch / "result"
    (server,) = runs.servers()
    # It prepares the processes of the first run last.
    await asyncio.to_thread(eventually, server.children)
    found = []
    for count in range(6):
        tasks = f"- copy: {{content: '{{{{ lookup(\"immortal\") }}}}', dest: {expected}}}\n"
        assert (await runs(tasks)).successful
        found.append(expected.read_text() == "True")
        if count == 0:
            server.kill()
            await asyncio.to_thread(eventually, lambda: not is_running(server))
    many = immortal.is_supported()
    assert found[:2] == [many, False]
    # On a busy machine the server may have been idle between two of the next runs.
    assert found[2:4] in ([False, False], [False, many], [many, many])
    assert found[4:] == [many, many]


async def test_a_daemon_of_a_run_continues_when_ansible_is_unloaded(tmp_path: Path) -> None:
    """Unloading ends the processes of the fork server, which has none of its own left."""
    nap = new_nap()
    tasks = f"- shell: setsid sleep {nap} >/dev/null 2>&1 </dev/null &\n"
    try:
        async with _runs(tmp_path, UNLOADED) as runs:
            assert (await runs(tasks)).successful
            await asyncio.to_thread(eventually, lambda: not runs.servers())
            assert sleepers(nap)
            assert (await runs("- debug:\n")).successful
            assert sleepers(nap)
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if process.info["cmdline"] == ["sleep", nap]:
                process.kill()


async def test_a_run_on_a_server_that_another_run_has_retired_gets_another_one() -> None:
    """It is the same as on a server that has ended."""
    server = await start_server(SETTINGS)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server.retire()
        with pytest.raises(BrokenPipeError):
            await server.order(b"{}\n{}", theirs)
    await server.stop()


async def test_a_fork_server_starts_beside_a_thousand_connections(tmp_path: Path) -> None:
    """Its socket has a number above 1023, which select.select would refuse."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        async with _runs(tmp_path, SETTINGS) as runs:
            assert (await runs("- debug:\n- command: 'true'\n")).successful
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
async def test_files_that_change_all_the_time_do_not_put_a_run_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was started for a run executes it, even if files have changed meanwhile."""
    searched = tmp_path / "lib"
    searched.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(searched))
    stop = threading.Event()

    def change() -> None:
        while not stop.wait(0.01):
            (searched / secrets.token_hex(4)).touch()

    changing = asyncio.create_task(asyncio.to_thread(change))
    try:
        async with open_launcher("warm", SETTINGS) as launcher, asyncio.timeout(400):
            runs = Runs(tmp_path, launcher)
            for _ in range(2):
                assert (await runs("- debug:\n")).successful
    finally:
        stop.set()
        await changing


async def test_many_runs_at_once(runs: Runs) -> None:
    """They do not mix: each ends with its own result, and no process is left."""
    tasks = "- command: echo {n}\n  register: said\n- assert: {{that: said.stdout == '{n}'}}\n"
    outcomes = await asyncio.gather(*(runs(tasks.format(n=n), f"r{n}") for n in range(6)))
    assert all(outcome.successful for outcome in outcomes)
    (server,) = runs.servers()
    # A supervisor and its play wait for the next run.
    await asyncio.to_thread(eventually, lambda: len(server.children(recursive=True)) <= 2)


async def test_a_run_without_a_process_does_not_affect_others(tmp_path: Path) -> None:
    """If the server cannot fork, this run fails with the reason; server and other runs continue."""
    gate, others = tmp_path / "gate", _children()
    async with open_launcher("warm", SETTINGS) as launcher:
        runs = Runs(tmp_path, launcher, others)
        (server,) = runs.servers()
        # After the first run, the next one is not forked in advance.
        assert (await runs("- debug:\n")).successful
        waiting = asyncio.create_task(runs(f"- wait_for: {{path: {gate}}}\n", "waiting"))
        await asyncio.to_thread(eventually, lambda: _has_forked_next(server))
        await _refuse_a_run(runs, server)
        gate.touch()
        assert (await waiting).successful
        # The next run may have been forked while there were no descriptors for it.
        await runs("- debug:\n", "forked before")
        assert (await runs("- debug:\n")).successful
        assert runs.servers() == [server]


def _has_forked_next(server: psutil.Process) -> bool:
    """Return whether the server only waits, beside a run and the processes for the next one."""
    return len(server.children()) == _RUN_AND_NEXT and server.status() == psutil.STATUS_SLEEPING


async def _refuse_a_run(runs: Runs, server: psutil.Process) -> None:
    """Take the descriptors for forks from the server; runs report it."""
    before = server.rlimit(psutil.RLIMIT_NOFILE)
    # Enough for the message of a run, not for the socket to its supervisor.
    server.rlimit(psutil.RLIMIT_NOFILE, (_next_descriptor(server) + 1, before[1]))
    assert (await runs("- debug:\n", "forked before")).successful
    refused = await runs("- debug:\n", "refused")
    server.rlimit(psutil.RLIMIT_NOFILE, before)
    assert "could not be forked: [Errno 24] Too many open files" in refused.failures[0].message


def _next_descriptor(process: psutil.Process) -> int:
    used = {int(entry) for entry in os.listdir(f"/proc/{process.pid}/fd")}  # noqa: PTH208
    return min(set(range(len(used) + 1)) - used)


async def test_servers_that_exit_at_once_are_not_retried_endlessly(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends with a reason for the condition of its resource."""

    async def killed(ansible: AnsibleSettings, *_: object) -> ForkServer:
        server = await start_server(ansible)
        runs.servers()[0].kill()
        return server

    monkeypatch.setattr(warm_launcher, "start_server", killed)
    runs.servers()[0].kill()
    await asyncio.to_thread(eventually, lambda: not runs.servers())
    outcome = await runs("- debug:\n")
    assert "fork servers in a row exited" in outcome.failures[0].message


async def test_without_a_server_plays_run_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Ansible cannot be loaded, one warning has the reason, and runs are cold."""
    monkeypatch.setenv("ANSIBLE_FORKS", "not a number")
    with structlog.testing.capture_logs() as logs:
        async with open_launcher("warm", SETTINGS) as launcher:
            assert isinstance(launcher, ColdLauncher)
    assert len(logs) == 1
    assert "cold" in logs[0]["event"]
    assert "DEFAULT_FORKS" in logs[0]["error"] or "not a number" in logs[0]["error"]


_ENDLESS_LOADING = """\
import sys
import time


class Finder:
    def find_spec(self, name, path=None, target=None):
        while name == "ansible.executor.playbook_executor":
            time.sleep(0.1)


sys.meta_path.insert(0, Finder())
"""
"""Makes the fork server load until it is ended: after its first temporary file."""
_HOLDER = """
import asyncio, sys
from pathlib import Path
from operator_runner.ansible.executor import open_launcher
from tests.contract.ansible.test_warm import SETTINGS, Runs

async def main():
    async with open_launcher("warm", SETTINGS) as launcher:
        await Runs(Path(sys.argv[1]), launcher)(f"- command: {sys.argv[2]}\\n")

asyncio.run(main())
"""


async def test_a_server_that_is_killed_while_it_loads_is_replaced() -> None:
    """Runs do not stay cold for good."""
    others = _children()

    def kill_the_first() -> None:
        found = eventually(
            lambda: [
                child
                for child in psutil.Process().children()
                if child.pid not in others and _is_server(child)
            ]
        )
        found[0].kill()

    killing = asyncio.create_task(asyncio.to_thread(kill_the_first))
    async with open_launcher("warm", SETTINGS) as launcher:
        await killing
        assert isinstance(launcher, WarmLauncher)


async def test_a_server_is_stopped_while_it_forks_the_next_run() -> None:
    """The next run's processes are forked when none has come for a while: a busy moment."""
    for _ in range(3):
        others = set(psutil.Process().children())
        server = await start_server(SETTINGS)
        (process,) = set(psutil.Process().children()) - others
        _wait_for_fork(process.pid)
        # It ends by itself: by force it would be -SIGKILL.
        assert await server.stop() == 0


def _wait_for_fork(pid: int) -> None:
    """Return as soon as there is a fork: a moment later it has no trouble to end."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while not children.read_text():
        pass
