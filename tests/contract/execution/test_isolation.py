"""Secrets of one run cannot be read by another that is under way at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from operator_runner.execution.executor import AnsibleExecutor
from operator_runner.execution.isolation.finding import find_isolation
from operator_runner.execution.isolation.isolation import Enclosure, Isolation, unsettled
from operator_runner.execution.launchers import open_launcher
from operator_runner.execution.rundir import RunDirs
from operator_runner.execution.workdir import placed
from operator_runner.model import GVK, Json, ObjectRef, Playbook, RunOutcome, RunRequest
from operator_runner.settings import AnsibleSettings, ExecutorName
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
# Nothing of this run, which knows the word backwards, is what is looked for.
needle = b"-" + module.params["word"][::-1].encode()
found, read = {}, 0


def look(path, content):
    at = -1
    while (at := content.find(needle, at + 1)) >= 0:
        kind = re.search(b"[a-z]*$", content[max(at - 20, 0) : at]).group()
        found.setdefault(kind.decode(), set()).add(str(path))


for place in map(pathlib.Path, module.params["places"]):
    for path in place.rglob("*"):
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

    def __init__(self, site: Path, launcher: Any, *, isolate: bool) -> None:
        self._site = site
        self._rundirs = RunDirs(site / "work", isolate=isolate)
        self._executor = AnsibleExecutor(launcher, self._rundirs, SETTINGS)

    async def start(self, name: str, tasks: str, module: str, **variables: Any) -> RunOutcome:
        role = self._site / "roles" / name
        for path, text in (("tasks/main.yml", tasks), (f"library/{name}.py", module)):
            (role / path).parent.mkdir(parents=True)
            (role / path).write_text(text)
        ref = ObjectRef(GVK("example.com", "v1", "Foo"), "default", name)
        own = str(self._rundirs.of(ref).path)
        extra: Json = {"site": str(self._site), "own": own, **variables}
        kubeconfig = f"kubeconfig-{WORD}" if name == "holding" else "none"
        request = RunRequest(name, ref, Playbook(role=role), extra, kubeconfig, 0, 3, None)
        return await self._executor.run(request, lambda _: None)

    async def search(self) -> Json:
        """Return what one run finds of the other one, which is under way."""
        holder = asyncio.create_task(
            self.start("holding", HOLDER, HOLDING, word=WORD, variable=f"variable-{WORD}")
        )
        await asyncio.to_thread(eventually, (self._site / "holds").exists)
        # What the cold ones unpack lies below the home directory, if nothing says otherwise.
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
        except BaseException as error:  # noqa: BLE001 (told to the parent)
            answer = repr(error)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        told = answers.read()
    os.waitpid(pid, 0)
    return json.loads(told)


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
def test_ways_to_hide_files(tmp_path: Path, isolation: Isolation) -> None:
    """By mounts, or by rules for paths where there is no privilege: own files, and no others."""
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
    enclosure = Enclosure(isolation, str(work), shown, (str(work / "shared"),))
    assert Enclosure.of(json.loads(json.dumps(enclosure.as_json()))) == enclosure

    def what_it_can() -> list[str]:
        os.chdir(paths["other"].parent)
        enclosure.enter()
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
    assert _in_child(what_it_can) == [*expected, *refused]
    assert paths["other"].read_text() == "x"


def test_runs_work_in_what_is_theirs(tmp_path: Path) -> None:
    """Files can be made, read, moved and linked as ever; processes can be started and ended."""
    work = tmp_path / "work"
    (work / "a").mkdir(parents=True)
    isolation = find_isolation(work).isolation

    def work_on() -> str:
        Enclosure(isolation, str(work), (str(work / "a"),)).enter()
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


def test_what_cannot_be_kept_apart_is_told(tmp_path: Path) -> None:
    """The fault names what is open, why, and the cure; a directory of one's own has none."""
    assert unsettled(Path("/proc/sys/kernel")) is None or os.geteuid() == 0
    assert unsettled(tmp_path / "work") is not None
    found = find_isolation(tmp_path)
    assert bool(found.fault) is not (found.isolation.processes and found.isolation.mounts)


def test_the_usual_work_dir_leads_to_that_of_the_image(tmp_path: Path) -> None:
    """A link is left where people look; another work dir, or one in use already, stays."""
    usual, store = tmp_path / "tmp" / "runner", tmp_path / "store"
    assert placed(usual, usual, store) == usual
    store.mkdir()
    assert placed(tmp_path / "own", usual, store) == tmp_path / "own"
    assert placed(usual, usual, store) == store
    assert placed(usual, usual, store) == store
    assert usual.readlink() == store
    usual.unlink()
    usual.mkdir()
    assert placed(usual, usual, store) == usual


@pytest.mark.parametrize(
    "part", ["artifacts", "artifacts/one", "artifacts/one/stdout", "env", "env/extravars"]
)
def test_links_of_a_run_lead_the_operator_nowhere(tmp_path: Path, part: str) -> None:
    """What a run puts in the place of its own files is not read, written or removed for it."""
    rundirs = RunDirs(tmp_path / "work")
    other, own = (rundirs.of(replace(REF, name=name)) for name in ("b", "a"))
    for rundir in (other, own):
        request = RunRequest("one", REF, Playbook(), {}, "token", 0, 1, None)
        rundir.prepare(request, SETTINGS)
        with rundir.artifact("one", "stdout") as file:
            file.write(f"of {rundir.path.name}")
        if rundir is other:
            rundir.scratch.close("one")
    before = _contents(other.path)
    for place in (own.path / part, own.scratch.of("one") / "k8srcp-x.json"):
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
    (own.path / part).symlink_to(other.path / part)
    (own.scratch.of("one") / "k8srcp-x.json").symlink_to(other.kubeconfig)
    assert "of b" not in own.output("one")
    own.close(request, left_processes=False)
    own.prepare(replace(request, run_id="two", kubeconfig="second"), SETTINGS)
    assert list(own.scratch.of("two").iterdir()) == []
    assert not (own.path / "env" / "extravars").is_symlink()
    assert own.kubeconfig.read_text() == "second"
    assert _contents(other.path) == before


def _contents(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_pipe_of_a_run_does_not_hold_the_operator(tmp_path: Path) -> None:
    """Nobody would ever read from it or write to it."""
    rundir = RunDirs(tmp_path / "work").of(REF)
    request = RunRequest("one", REF, Playbook(), {}, "token", 0, 1, None)
    rundir.prepare(request, SETTINGS)
    rundir.artifact("one", "stdout").close()
    for pipe in (rundir.path / "env" / "extravars", rundir.artifacts("one") / "stdout"):
        pipe.unlink()
        os.mkfifo(pipe)
    assert rundir.output("one") == ""
    rundir.prepare(replace(request, run_id="two"), SETTINGS)
    assert (rundir.path / "env" / "extravars").read_text() == "{}"
