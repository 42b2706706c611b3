"""The private data dir and the temporary directory of a run, on a real file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operator_runner.ansible import rerun_command
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json, ObjectRef, RunContent, RunRequest
from operator_runner.core.settings import AnsibleSettings
from tests.support.timestamps import wait_for_new_timestamp

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")


def request(run_id: str, keep: int = 2, *, dry_run: bool = False) -> RunRequest:
    return RunRequest(run_id, REF, RunContent(), {}, "the token", 0, keep, None, dry_run=dry_run)


@pytest.fixture
def rundirs(tmp_path: Path) -> RunDirs:
    return RunDirs(tmp_path / "work")


@pytest.mark.parametrize("below", [".", "work"])
def test_a_work_dir_that_cannot_be_written_is_an_error_with_a_solution(
    tmp_path: Path, below: str
) -> None:
    """A file in the place of the directory, as a read-only root file system, is not a bug."""
    (tmp_path / "file").touch()
    work_dir = tmp_path / "file" / below
    with pytest.raises(ConfigError, match=rf"^--work-dir {work_dir}: cannot write to it \(Not a"):
        RunDirs(work_dir)


def test_two_operators_do_not_share_a_work_dir(tmp_path: Path) -> None:
    """The error of the second one names the flag to change."""
    first = RunDirs(tmp_path)
    with pytest.raises(ConfigError, match="--work-dir"):
        RunDirs(tmp_path)
    assert first.base == tmp_path


def run(
    rundirs: RunDirs,
    run_id: str,
    *,
    left_processes: bool = False,
    command: str = "",
    cache: str = "",
    dry_run: bool = False,
) -> Path:
    """Prepare and close a run that leaves files and a discovery cache; return its TMPDIR."""
    # The times of their directories are the order of runs.
    wait_for_new_timestamp(rundirs.base.parent)
    with rundirs.open(REF) as rundir:
        rundir.prepare(request(run_id, dry_run=dry_run), AnsibleSettings())
        scratch = rundir.temp_dir(run_id)
        (scratch / "left").touch()
        (scratch / "k8srcp-1.json").write_text(cache)
        with rundir.artifacts(run_id) as artifacts:
            text = command or json.dumps({"command": [], "env": {"SECRET": "xyzzy"}})
            artifacts.write("command", text)
        rundir.clean_up(request(run_id, dry_run=dry_run), left_processes=left_processes)
    return scratch


CACHE: Json = {"resources": {"apis": {"apps": {"v1": {"resources": {"Deployment": []}}}}}}
DISCOVERED = {"resources": {"": {"": {"v1": {"resources": {"Pod": []}}}}, **CACHE["resources"]}}


def discover(rundirs: RunDirs, *, done: bool = True) -> list[str]:
    """Do what a fork server does before a run; return the versions that it is asked for."""
    task = rundirs.temp_dirs.begin_discovery("kubeconfig")
    if task is None:
        return []
    (Path(task["directory"]) / "k8srcp-1.json").write_text(json.dumps(DISCOVERED))
    rundirs.temp_dirs.end_discovery(task, done=done)
    return list(task["versions"])


def shared(rundirs: RunDirs, run_id: str) -> list[Json]:
    """Return the caches that a run gets."""
    with rundirs.open(REF) as rundir:
        rundir.prepare(request(run_id), AnsibleSettings())
        return [json.loads(path.read_text()) for path in rundir.temp_dir(run_id).glob("k8srcp-*")]


def test_the_temporary_directory_is_deleted_with_the_run(rundirs: RunDirs) -> None:
    """Later runs get nothing of what is in it."""
    assert not run(rundirs, "one").exists()
    assert shared(rundirs, "two") == []


def test_runs_share_a_discovery_that_none_of_them_has_written(rundirs: RunDirs) -> None:
    """A run determines only the API versions, and of those only what can be one."""
    assert discover(rundirs) == []
    forged = {"v1": {"resources": [1]}}
    cache = {
        "resources": {**CACHE["resources"], "api": {"": forged, "../x": forged, "a b": forged}}
    }
    run(rundirs, "one", cache=json.dumps(cache))
    assert discover(rundirs) == ["apps/v1", "v1"]
    assert shared(rundirs, "two") == [DISCOVERED]
    assert discover(rundirs) == []


def test_versions_that_are_not_served_are_not_discovered_again(rundirs: RunDirs) -> None:
    """A run may name as many as it likes: they hide no other, and cost one discovery."""
    forged = {f"a{number}.example.com": {"v1": {"resources": [1]}} for number in range(100)}
    run(rundirs, "one", cache=json.dumps({"resources": {"apis": forged}}))
    assert len(discover(rundirs)) == 100
    run(rundirs, "two", cache=json.dumps(CACHE))
    assert discover(rundirs) == ["apps/v1"]
    run(rundirs, "three", cache=json.dumps({"resources": {"apis": forged}}))
    assert discover(rundirs) == []

    for start in range(100, 1000, 100):
        names = [f"a{number}.example.com" for number in range(start, start + 100)]
        forged = {name: {"v1": {"resources": [1]}} for name in names}
        run(rundirs, f"more-{start}", cache=json.dumps({"resources": {"apis": forged}}))
        discover(rundirs)
    assert discover(rundirs) == []
    rundirs.forget_discovery()
    assert discover(rundirs) == ["apps/v1"]


@pytest.mark.parametrize("cache", ["{", "[]", '{"resources": 1}', '{"resources": {"a": [1]}}'])
def test_any_cache_of_a_run_is_possible(rundirs: RunDirs, cache: str) -> None:
    """It is ignored."""
    run(rundirs, "one", cache=cache)
    assert discover(rundirs) == []


def test_an_outdated_discovery_is_not_shared(rundirs: RunDirs) -> None:
    """The next run discovers again, also if a discovery was in progress, or has failed."""
    run(rundirs, "one", cache=json.dumps(CACHE))
    task = rundirs.temp_dirs.begin_discovery("kubeconfig")
    assert task is not None
    rundirs.forget_discovery()
    rundirs.temp_dirs.end_discovery(task, done=True)
    assert shared(rundirs, "two") == []
    assert discover(rundirs) == ["apps/v1"]
    assert shared(rundirs, "three") == [DISCOVERED]
    rundirs.forget_discovery()
    assert shared(rundirs, "four") == []
    assert discover(rundirs, done=False) == ["apps/v1"]
    assert shared(rundirs, "five") == []


def test_processes_that_are_still_running_keep_theirs_for_a_while(rundirs: RunDirs) -> None:
    """Until the artifacts of their run are rotated away, or the resource goes."""
    kept = run(rundirs, "one", left_processes=True)
    assert kept.exists()
    for later in ("two", "three", "four"):
        run(rundirs, later)
    assert not kept.exists()
    kept = run(rundirs, "five", left_processes=True)
    rundirs.remove(REF)
    assert not kept.exists()


def test_a_dry_run_leaves_the_artifacts_of_other_runs(rundirs: RunDirs) -> None:
    """However many there are; it has none itself."""
    run(rundirs, "one")
    run(rundirs, "two")
    for dry in ("three", "four", "five"):
        assert not run(rundirs, dry, dry_run=True, left_processes=True).exists()
    found = rundirs.path_of(REF) / "artifacts"
    assert {entry.name for entry in found.iterdir()} == {"one", "two", "latest"}
    assert (found / "latest").readlink() == Path("two")


def test_nothing_is_left_after_the_last_resource(rundirs: RunDirs) -> None:
    """Neither caches nor empty directories."""
    run(rundirs, "one")
    rundirs.remove(REF)
    assert [path.name for path in rundirs.base.iterdir()] == [".lock"]


@pytest.mark.parametrize("text", ["", '{"command": [], "env": {"SECR'], ids=["whole", "half"])
def test_artifacts_contain_no_environment(rundirs: RunDirs, text: str) -> None:
    """Not even where the run was killed while it wrote the file."""
    run(rundirs, "one", command=text)
    left = [path for path in rundirs.path_of(REF).rglob("*") if path.is_file()]
    assert "SECR" not in "".join(path.read_text() for path in left)


def test_artifacts_contain_no_empty_directories(rundirs: RunDirs) -> None:
    """Each takes a block of the disk, and as much memory while the kernel caches it."""
    with rundirs.open(REF) as rundir:
        rundir.prepare(request("1"), AnsibleSettings())
        with (
            rundir.artifacts("1") as artifacts,
            artifacts.below("job_events", create=True),
            artifacts.below("fact_cache", create=True) as facts,
        ):
            facts.write("localhost", "{}")
        rundir.clean_up(request("1"), left_processes=False)
    found = rundirs.path_of(REF) / "artifacts" / "1"
    assert [path.name for path in found.iterdir()] == ["fact_cache"]


@pytest.mark.parametrize("name", ["a" * 253, "a" * 5000, "a" + "é😀" * 100])
def test_the_longest_name_of_a_resource_is_not_an_error(rundirs: RunDirs, name: str) -> None:
    """The command of a failed run is kept, and everything is deleted.

    253 characters, but names of RBAC objects have no limit.
    """
    ref = ObjectRef(REF.gvk, "default", name)
    with rundirs.open(ref) as rundir:
        rundir.prepare(request("one"), AnsibleSettings())
    command = rerun_command.Rerun("one", "ansible-playbook main.json")
    rerun_command.write(rundirs.base, ref, command)
    assert rerun_command.read(rundirs.base, ref) == command
    rundirs.remove(ref)
    assert rerun_command.read(rundirs.base, ref) is None
    assert not list(rundirs.base.glob("**/a*"))


def test_encoded_names_have_dirs_of_their_own(rundirs: RunDirs) -> None:
    """The dir of no other resource has such a name, because no name has a %."""
    names = ["a" * 255, "system:node", "$HOME", "a" * 256, "a" * 257, ":" * 200]
    found = [rundirs.path_of(ObjectRef(REF.gvk, "default", name)).name for name in names]
    assert found[0] == names[0]
    assert len(set(found)) == len(names)
    assert all("%" in name for name in found[1:])
    assert not any(set(":$") & set(name) or len(name) > 255 for name in found)


def test_the_kubeconfig_of_a_resource_with_a_colon_in_its_name_has_none(rundirs: RunDirs) -> None:
    """KUBECONFIG is a list of paths with colons between them, and RBAC names have colons."""
    ref = ObjectRef(REF.gvk, "default", "system:node")
    with rundirs.open(ref) as rundir:
        rundir.prepare(request("one"), AnsibleSettings())
        assert ":" not in str(rundir.kubeconfig)
