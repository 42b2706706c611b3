"""Secrets of one run cannot be read by another run at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from operator_runner.ansible.executor import AnsibleExecutor, open_launcher
from operator_runner.ansible.libc import call
from operator_runner.ansible.rundir import RunDirs, resolve_work_dir
from operator_runner.ansible.sandbox.isolation import Isolation, Sandbox, writable_ancestor
from operator_runner.ansible.sandbox.isolation_probe import probe_isolation
from operator_runner.core.model import GVK, Json, ObjectRef, RunContent, RunOutcome, RunRequest
from operator_runner.core.settings import AnsibleSettings, ExecutorName
from tests.support.waiting import eventually

SETTINGS = AnsibleSettings(skip_facts=True)
REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
WORD = "of-the-holder-alone"
HOLDER = """
- name: Own files and processes
  shell: |
    umask 077
    printf %s file-$WORD > $TMPDIR/kept
    cat $TMPDIR/kept $KUBECONFIG
    test -d {{ own }}/env
    touch {{ site }}/holds
    while ! test -e {{ site }}/searched; do sleep 0.05; done
  environment: {WORD: '{{ word }}', SECRET: 'environment-{{ word }}'}
- name: Own memory
  holding: {secret: 'argument-{{ word }}'}
"""
HOLDING = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"secret": {}})
module.exit_json(length=len(module.params["secret"]))
"""
SEARCHING = """#!/usr/bin/python
import os, pathlib, re
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(
    {"word": {}, "places": {"type": "list"}, "processes": {"type": "list", "elements": "int"}}
)
# The run has the word backwards, so nothing of itself is found.
needle = b"-" + module.params["word"][::-1].encode()
found, read = {}, 0


def look(path, content):
    at = -1
    while (at := content.find(needle, at + 1)) >= 0:
        kind = re.search(b"[a-z]*$", content[max(at - 20, 0) : at]).group()
        found.setdefault(kind.decode(), set()).add(str(path))


# Others remove directories meanwhile: os.walk skips missing ones.
files = (
    pathlib.Path(folder, name)
    for place in module.params["places"]
    for folder, _, names in os.walk(place)
    for name in names
)
for path in files:
    try:
        look(path, path.read_bytes())
        read += 1
    except OSError:
        pass
for pid in module.params["processes"]:
    process = pathlib.Path("/proc", str(pid))
    try:
        look(process / "environ", (process / "environ").read_bytes())
    except OSError:
        pass
    try:
        with open(process / "maps") as maps, open(process / "mem", "rb") as memory:
            for line in maps:
                area, rights = line.split()[:2]
                start, end = (int(part, 16) for part in area.split("-"))
                if rights.startswith("rw"):
                    memory.seek(start)
                    look(process / "mem", memory.read(end - start))
    except OSError:
        pass
module.exit_json(found={kind: sorted(paths) for kind, paths in found.items()}, read=read)
"""


class Runs:
    """Runs of two roles at once, by one launcher, below one work dir."""

    def __init__(
        self, site: Path, launcher: Any, *, isolate: bool, credentials: Sequence[Path] = ()
    ) -> None:
        self._site = site
        self._rundirs = RunDirs(site / "work", isolate=isolate, credentials=credentials)
        self._executor = AnsibleExecutor(launcher, self._rundirs, SETTINGS)

    async def start(self, name: str, tasks: str, module: str, **variables: Any) -> RunOutcome:
        role = self._site / "roles" / name
        for path, text in (("tasks/main.yml", tasks), (f"library/{name}.py", module)):
            (role / path).parent.mkdir(parents=True)
            (role / path).write_text(text)
        ref = ObjectRef(GVK("example.com", "v1", "Foo"), "default", name)
        own = str(self._rundirs.path_of(ref))
        extra: Json = {"site": str(self._site), "own": own, **variables}
        kubeconfig = f"kubeconfig-{WORD}" if name == "holding" else "none"
        request = RunRequest(name, ref, RunContent(role=role), extra, kubeconfig, 0, 3, None)
        return await self._executor.run(request, lambda _: None)

    async def search(self) -> Json:
        """Return the data of the other active run that one run can read."""
        holder = asyncio.create_task(
            self.start("holding", HOLDER, HOLDING, word=WORD, variable=f"variable-{WORD}")
        )
        await asyncio.to_thread(eventually, (self._site / "holds").exists)
        # Cold runs unpack modules below the home directory by default.
        places = [str(self._site / "work"), str(Path.home() / ".ansible" / "tmp")]
        others = [process.pid for process in psutil.Process().children(recursive=True)]
        arguments = {"word": WORD[::-1], "places": places, "processes": others}
        tasks = json.dumps([{"searching": arguments}])
        thief = await self.start("searching", tasks, SEARCHING)
        (self._site / "searched").touch()
        held = await holder
        assert held.successful, held.failures
        assert thief.successful, thief.failures
        events = self._site / "work/example.com/v1/Foo/default/searching/artifacts/searching"
        lines = map(json.loads, (events / "events.jsonl").read_text().splitlines())
        (result,) = (line["event_data"]["res"] for line in lines if "_ok" in line["event"])
        assert isinstance(result, dict)
        return result


@pytest.mark.parametrize("name", ["cold", "warm"])
async def test_a_run_reads_nothing_of_another(tmp_path: Path, name: ExecutorName) -> None:
    """Neither its files, nor environment and memory of its processes; both still do their work."""
    async with open_launcher(name, SETTINGS) as launcher:
        (tmp_path / "kept-apart").mkdir()
        result = await Runs(tmp_path / "kept-apart", launcher, isolate=True).search()
        assert result["found"] == {}
        assert result["read"] > 0
        # The same search finds it all where runs are not kept apart.
        (tmp_path / "not").mkdir()
        result = await Runs(tmp_path / "not", launcher, isolate=False).search()
        assert set(result["found"]) >= {"kubeconfig", "variable", "environment", "file"}


def _in_child(body: Callable[[], object]) -> object:
    """Return what `body` returns in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer = body()
        except BaseException as error:  # noqa: BLE001 (sent to the parent)
            answer = repr(error)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        output = answers.read()
    os.waitpid(pid, 0)
    return json.loads(output)


def _readable(paths: dict[str, Path]) -> list[str]:
    found = []
    for name, path in paths.items():
        try:
            path.read_bytes()
        except OSError:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize(
    "isolation",
    [Isolation(mounts=True, processes=True), Isolation(paths=True, processes=True)],
    ids=["mounts", "paths"],
)
def test_files_are_hidden_by_mounts_or_landlock(tmp_path: Path, isolation: Isolation) -> None:
    """By mounts, or without privilege by path rules, a run can read only its own files."""
    work = tmp_path / "above" / "work"
    paths = {
        "own": work / "a" / "own",
        "temporary": work / "tmp" / "own",
        "other": work / "b" / "other",
        "beside the work dir": tmp_path / "beside",
        "below the root": Path("/etc/passwd"),
        "of the system": Path("/proc/self/environ"),
        "environment": Path(f"/proc/{os.getpid()}/environ"),
    }
    for path in list(paths.values())[:4]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (work / "shared").mkdir()
    shown = (str(work / "a"), str(work / "tmp"))
    sandbox = Sandbox(isolation, str(work), shown, (str(work / "shared"),))
    assert Sandbox.from_json(json.loads(json.dumps(asdict(sandbox)))) == sandbox

    def find_accessible() -> list[str]:
        os.chdir(paths["other"].parent)
        sandbox.enter()
        readable = _readable({**paths, "in the working directory": Path("other")})
        refused = [*filter(_is_refused, changes)]
        return [*readable, *refused]

    changes: dict[str, Callable[[], object]] = {
        "moved": lambda: paths["other"].rename(tmp_path / "taken"),
        "linked": lambda: (tmp_path / "link").hardlink_to(paths["other"]),
        "written": lambda: paths["other"].write_text("changed"),
        "removed": paths["other"].unlink,
        "made beside": lambda: (work / "b" / "new").write_text("x"),
        "made for all": lambda: (work / "shared" / "new").write_text("x"),
        "own": lambda: (work / "a" / "new").write_text("x"),
        "own removed": (work / "a" / "new").unlink,
    }

    def _is_refused(change: str) -> bool:
        try:
            changes[change]()
        except OSError:
            return True
        return False

    expected = [name for name in paths if name not in ("other", "environment")]
    refused = [change for change in changes if not change.startswith("own")]
    assert _in_child(find_accessible) == [*expected, *refused]
    assert paths["other"].read_text() == "x"


def test_runs_can_use_their_own_files_and_processes(tmp_path: Path) -> None:
    """Files can be made, read, moved and linked as ever; processes can be started and ended."""
    work = tmp_path / "work"
    (work / "a").mkdir(parents=True)
    isolation = probe_isolation(work).isolation

    def work_on() -> str:
        Sandbox(isolation, str(work), (str(work / "a"),)).enter()
        (tmp_path / "x").write_text("x")
        (tmp_path / "y").mkdir()
        (tmp_path / "x").rename(tmp_path / "y" / "x")
        # As between file systems, these are copied.
        shutil.move(tmp_path / "y" / "x", work / "a" / "x")
        shutil.move(work / "a" / "x", tmp_path / "y" / "x")
        os.link(tmp_path / "y" / "x", tmp_path / "z")
        pid = os.fork()
        if not pid:
            signal.pause()
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        return (tmp_path / "z").read_text()

    assert isolation.processes
    assert _in_child(work_on) == "x"


CREDENTIALS = {
    "kubeconfig": "kube/config",
    "key of the kubeconfig": "kube/client.key",
    "cache of an exec plugin": "cache/token",
    "token": "serviceaccount/token",
    "key of the webhook": "certs/tls.key",
}
PUBLIC = ("serviceaccount/ca.crt", "serviceaccount/namespace", "certs/tls.crt", "kube/other")


def _with_credentials(site: Path) -> list[Path]:
    """Write the operator's credentials below `site`; return the paths to hide from runs."""
    for name in (*CREDENTIALS.values(), *PUBLIC):
        path = site / name
        volume = path.parent / "..2026_01_01"
        target = path
        # As the kubelet lays out Secrets and tokens.
        if path.parent.name in {"serviceaccount", "certs"}:
            target = volume / path.name
            volume.mkdir(parents=True, exist_ok=True)
            (path.parent / "..data").unlink(missing_ok=True)
            (path.parent / "..data").symlink_to(volume.name)
            path.symlink_to(Path("..data") / path.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"secret of {name}")
    kept = [site / name for name in CREDENTIALS.values() if not name.startswith("cache")]
    return [*kept, site / "cache"]


@pytest.mark.parametrize(
    "isolation",
    [Isolation(mounts=True, processes=True), Isolation(processes=True)],
    ids=["mounts", "paths"],
)
def test_credentials_of_the_operator_cannot_be_read(tmp_path: Path, isolation: Isolation) -> None:
    """Credential files, volumes and directories are hidden; files beside them can be read."""
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    secrets = tuple(map(str, _with_credentials(site)))
    sandbox = Sandbox(isolation, str(work), (), (), secrets)
    places = {name: site / path for name, path in CREDENTIALS.items()}
    through = {f"{name} by its target": path.resolve() for name, path in places.items()}

    def find_readable() -> list[str]:
        sandbox.enter()
        assert _in_child(lambda: _texts(PUBLIC, site)) == [f"secret of {name}" for name in PUBLIC]
        return [
            name
            for name, path in {**places, **through}.items()
            if any("secret" in text for text in _texts([str(path)], site))
        ]

    assert _in_child(find_readable) == []
    assert _texts(CREDENTIALS.values(), site) == [f"secret of {n}" for n in CREDENTIALS.values()]


NOBODY = 65534
_PR_SET_NO_NEW_PRIVS = 38


def test_without_privileges_rules_for_paths_and_scopes_do_the_same() -> None:
    """In a container whose user is not root and may gain nothing, as operators are deployed."""
    with tempfile.TemporaryDirectory() as folder:
        site, work = Path(folder, "site"), Path(folder, "work")
        work.mkdir()
        secrets = tuple(map(str, _with_credentials(site)))
        Path(folder).chmod(0o755)
        isolation = Isolation(paths=True, processes=True, signals=True, limits=True)
        sandbox = Sandbox(isolation, str(work), (), (), secrets)

        def find_readable_without_root() -> list[str]:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            before = _texts(CREDENTIALS.values(), site)
            assert len(before) == len(CREDENTIALS)
            os.kill(outside.pid, 0)
            sandbox.enter()
            assert len(_texts(PUBLIC, site)) == len(PUBLIC)
            with pytest.raises(PermissionError):
                os.kill(outside.pid, signal.SIGKILL)
            with pytest.raises(PermissionError):
                resource.prlimit(outside.pid, resource.RLIMIT_CPU, (1, 1))
            return _texts(CREDENTIALS.values(), site)

        with subprocess.Popen(["sleep", "600"], user=NOBODY) as outside:
            try:
                assert _in_child(find_readable_without_root) == []
                assert outside.poll() is None
            finally:
                outside.kill()


def _texts(names: Iterable[str], site: Path) -> list[str]:
    found = []
    for name in names:
        try:
            found.append((site / name).read_text())
        except OSError:
            continue
    return found


ATTACK = """
- name: Attack
  attacking: {targets: '{{ targets }}', files: '{{ files }}', own: '{{ own_process }}'}
- name: Attack from a shell, and leave a process behind
  shell: |
    for target in {{ targets | join(' ') }}; do kill -s URG $target && echo killed; done
    for file in {{ files | join(' ') }}; do cat $file; done
    sleep 0.1 & kill $!
  register: shell
  failed_when: "'killed' in shell.stdout or 'secret' in shell.stdout"
- name: Attack from the play
  set_fact: {read: "{{ lookup('pipe', attack) }}"}
  failed_when: "'killed' in read or 'secret' in read"
  vars: &attack
    attack: >-
      kill -s URG {{ targets | join(' ') }} && echo killed;
      cat {{ files | join(' ') }} 2>&1; true
- name: Attack from the background
  shell: '{{ attack }}'
  vars: *attack
  async: 60
  poll: 1
  register: behind
  failed_when: "'killed' in behind.stdout | default('') or 'secret' in behind.stdout | default('')"
"""
ATTACKING = """#!/usr/bin/python
import ctypes, os, resource, signal
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(
    {
        "targets": {"type": "list", "elements": "int"},
        "files": {"type": "list", "elements": "str"},
        "own": {"type": "bool"},
    }
)
libc = ctypes.CDLL(None, use_errno=True)
limit = resource.RLIMIT_CPU
done = []
for target in module.params["targets"]:
    for name, attack in {
        "kill": lambda: os.kill(target, signal.SIGURG),
        "zero": lambda: os.kill(target, 0),
        "group": lambda: os.killpg(os.getpgid(target), signal.SIGURG),
        "pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(target), signal.SIGURG),
        "memory": lambda: open(f"/proc/{target}/mem", "r+b"),
        "environment": lambda: open(f"/proc/{target}/environ").read(),
        "root": lambda: os.listdir(f"/proc/{target}/root"),
        "limits": lambda: resource.prlimit(target, limit, resource.prlimit(target, limit)),
    }.items():
        try:
            attack()
        except OSError:
            continue
        done.append(f"{name} of {target}")
    tgkill = 234 if os.uname().machine == "x86_64" else 131
    if libc.syscall(tgkill, target, target, signal.SIGURG) == 0:
        done.append(f"tgkill of {target}")
for path in module.params["files"]:
    try:
        if "secret" in open(path).read():
            done.append(f"read {path}")
    except OSError:
        pass
# Its own limits it may change, and its own processes end.
resource.setrlimit(limit, resource.getrlimit(limit))
child = os.fork()
if not child:
    signal.pause()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
if done:
    module.fail_json(msg=f"done: {done}")
module.exit_json()
"""
SIGNAL_ALL = """
- name: Send all processes a signal that is ignored by default, and its own shell one that ends it
  shell: kill -s URG -1; kill -9 0
"""
WITNESS = """
import pathlib, signal, sys
signal.signal(signal.SIGURG, lambda *_: pathlib.Path(sys.argv[1], "hit").touch())
pathlib.Path(sys.argv[1], "listens").touch()
while True:
    signal.pause()
"""


@asynccontextmanager
async def _witness(folder: Path) -> AsyncIterator[int]:
    """Run a process that is not of any run, and makes the file `hit` if a signal reaches it."""
    program = (sys.executable, "-c", WITNESS, str(folder))
    process = await asyncio.create_subprocess_exec(*program, start_new_session=True)
    try:
        await asyncio.to_thread(eventually, (folder / "listens").exists)
        yield process.pid
    finally:
        process.kill()
        await process.wait()


def _command(process: psutil.Process) -> str:
    """Return the command line; empty if the process has exited meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _processes_of_holder() -> list[int]:
    """Return the current run and its ancestors, without the processes for the next run."""
    below = psutil.Process().children(recursive=True)
    shell = next(process for process in below if "searched" in _command(process))
    above = [process for process in shell.parents() if process in below]
    run = above[-2] if "forkserver.server" in _command(above[-1]) else above[-1]
    return [process.pid for process in {shell, *above, *run.children(recursive=True)}]


@pytest.mark.parametrize("name", ["cold", "warm"])
async def test_a_run_attacks_neither_the_operator_nor_another_run(
    tmp_path: Path, name: ExecutorName
) -> None:
    """It reads no credentials, and its signals reach itself alone: from modules, shells, the play.

    Nor does it change limits of others, such as that of CPU time, which ends a process.

    The operator is this process here; the others are the fork server, another run and a witness.
    """
    secrets = _with_credentials(tmp_path / "site")
    async with _witness(tmp_path) as witness, open_launcher(name, SETTINGS) as launcher:
        runs = Runs(tmp_path, launcher, isolate=True, credentials=secrets)
        holder = asyncio.create_task(
            runs.start("holding", HOLDER, HOLDING, word=WORD, variable=f"variable-{WORD}")
        )
        await asyncio.to_thread(eventually, (tmp_path / "holds").exists)
        targets = [witness, os.getpid(), *_processes_of_holder()]
        files = [str(tmp_path / "site" / path) for path in CREDENTIALS.values()]
        attack = await runs.start(
            "attacking", ATTACK, ATTACKING, targets=targets, files=files, own_process=True
        )
        assert attack.successful, attack.failures
        ended = await runs.start("ending", SIGNAL_ALL, ATTACKING)
        assert not ended.successful
        assert not (tmp_path / "hit").exists()
        (tmp_path / "searched").touch()
        held = await holder
        assert held.successful, held.failures
        after = await runs.start("after", "- debug:\n", ATTACKING)
        assert after.successful, after.failures


@pytest.mark.parametrize("name", ["cold", "warm"])
async def test_runs_that_are_not_isolated_read_credentials(
    tmp_path: Path, name: ExecutorName
) -> None:
    """The same attack succeeds there, so that it shows something."""
    secrets = _with_credentials(tmp_path / "site")
    settings = replace(SETTINGS, isolate_runs=False)
    async with _witness(tmp_path) as witness, open_launcher(name, settings) as launcher:
        runs = Runs(tmp_path, launcher, isolate=False, credentials=secrets)
        files = [str(tmp_path / "site" / path) for path in CREDENTIALS.values()]
        attack = await runs.start(
            "attacking", ATTACK, ATTACKING, targets=[witness], files=files, own_process=True
        )
        await asyncio.to_thread(eventually, (tmp_path / "hit").exists)
    assert not attack.successful
    for word in ("kill of", "tls.key", "serviceaccount/token", "kube/config", "client.key"):
        assert word in attack.failures[0].message


def test_missing_isolation_is_reported(tmp_path: Path) -> None:
    """The message has the exposed path, the reason and the fix; private directories pass."""
    assert writable_ancestor(Path("/proc/sys/kernel")) is None or os.geteuid() == 0
    assert writable_ancestor(tmp_path / "work") is not None
    found = probe_isolation(tmp_path)
    assert bool(found.fault) is not (found.isolation.processes and found.isolation.mounts)


def test_the_usual_work_dir_leads_to_that_of_the_image(tmp_path: Path) -> None:
    """A link is left where people look; another work dir, or one in use already, stays."""
    usual, store = tmp_path / "tmp" / "runner", tmp_path / "store"
    assert resolve_work_dir(usual, usual, store) == usual
    store.mkdir()
    assert resolve_work_dir(tmp_path / "own", usual, store) == tmp_path / "own"
    assert resolve_work_dir(usual, usual, store) == store
    assert resolve_work_dir(usual, usual, store) == store
    assert usual.readlink() == store
    usual.unlink()
    usual.mkdir()
    assert resolve_work_dir(usual, usual, store) == store
    mounted = Path("/dev/shm")
    assert resolve_work_dir(mounted, mounted, store) == mounted


@pytest.mark.parametrize(
    "part", ["artifacts", "artifacts/one", "artifacts/one/stdout", "env", "env/extravars"]
)
def test_links_of_a_run_lead_the_operator_nowhere(tmp_path: Path, part: str) -> None:
    """The operator does not read, write or remove links that a run puts in place of its files."""
    rundirs = RunDirs(tmp_path / "work")
    other, own = (rundirs.open(replace(REF, name=name)) for name in ("b", "a"))
    for rundir in (other, own):
        request = RunRequest("one", REF, RunContent(), {}, "token", 0, 1, None)
        rundir.prepare(request, SETTINGS)
        with rundir.artifacts("one") as artifacts:
            artifacts.write("stdout", f"of {rundir.path.name}")
        if rundir is other:
            rundir.temp_dirs.remove(rundir.path, "one")
    before = _contents(other.path)
    for place in (own.path / part, own.temp_dir("one") / "k8srcp-x.json"):
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
    (own.path / part).symlink_to(other.path / part)
    (own.temp_dir("one") / "k8srcp-x.json").symlink_to(other.kubeconfig)
    assert "of b" not in own.output("one")
    own.clean_up(request, left_processes=False)
    own.prepare(replace(request, run_id="two", kubeconfig="second"), SETTINGS)
    assert list(own.temp_dir("two").iterdir()) == []
    assert not (own.path / "env" / "extravars").is_symlink()
    assert own.kubeconfig.read_text() == "second"
    assert _contents(other.path) == before


def _contents(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_prepared_and_closed_without_descriptors_left(tmp_path: Path) -> None:
    """Neither by successful calls nor by those that find a link or a directory."""
    rundirs = RunDirs(tmp_path / "work")
    request = RunRequest("one", REF, RunContent(), {}, "token", 0, 1, None)
    process = psutil.Process()
    before = process.num_fds()
    with rundirs.open(REF) as rundir:
        rundir.prepare(request, SETTINGS)
        assert process.num_fds() == before + 1
        with rundir.artifacts("one") as artifacts:
            assert process.num_fds() == before + 2
            artifacts.link("stdout", "nowhere")
        assert rundir.output("one") == ""
        (rundir.path / "artifacts" / "one" / "stdout").unlink()
        (rundir.path / "artifacts" / "one" / "stdout").mkdir()
        assert rundir.output("one") == ""
        rundir.clean_up(request, left_processes=False)
        assert process.num_fds() == before + 1
    assert process.num_fds() == before


def test_a_pipe_of_a_run_does_not_hold_the_operator(tmp_path: Path) -> None:
    """No process would read from it or write to it."""
    request = RunRequest("one", REF, RunContent(), {}, "token", 0, 1, None)
    with RunDirs(tmp_path / "work").open(REF) as rundir:
        rundir.prepare(request, SETTINGS)
        with rundir.artifacts("one") as artifacts:
            artifacts.write("stdout", "")
        for pipe in (rundir.path / "env" / "extravars", artifacts.path / "stdout"):
            pipe.unlink()
            os.mkfifo(pipe)
        assert rundir.output("one") == ""
        rundir.prepare(replace(request, run_id="two"), SETTINGS)
        assert (rundir.path / "env" / "extravars").read_text() == "{}"


def test_a_replaced_directory_of_a_run_is_not_that_of_the_operator(tmp_path: Path) -> None:
    """A run that moves its directory away and puts a link there leads the operator nowhere."""
    rundirs = RunDirs(tmp_path / "work")
    path = rundirs.path_of(REF)
    request = RunRequest("one", REF, RunContent(), {}, "token", 0, 1, None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with rundirs.open(REF) as rundir:
        rundir.prepare(request, SETTINGS)
        path.rename(tmp_path / "moved")
        path.symlink_to(elsewhere)
        with rundir.artifacts("one") as artifacts:
            artifacts.write("stdout", "output")
        assert rundir.output("one") == "output"
        rundir.clean_up(request, left_processes=False)
    with rundirs.open(REF) as rundir:
        rundir.prepare(request, SETTINGS)
        rundir.clean_up(request, left_processes=False)
    assert list(elsewhere.iterdir()) == []
    assert path.is_dir()
    assert not path.is_symlink()
