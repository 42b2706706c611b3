"""The private data dir and the temporary directory of a run, on a real file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operator_runner.ansible import rerun_command
from operator_runner.ansible.history import recorded_resources
from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, ObjectRef, RunContent, RunRequest
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


def run(
    rundirs: RunDirs,
    run_id: str,
    *,
    left_processes: bool = False,
    command: str = "",
    dry_run: bool = False,
) -> Path:
    """Prepare and close a run that leaves a file and a discovery cache; return its TMPDIR."""
    # The times of their directories are the order of runs.
    wait_for_new_timestamp(rundirs.base.parent)
    with rundirs.open(REF) as rundir:
        rundir.prepare(request(run_id, dry_run=dry_run), AnsibleSettings())
        scratch = rundir.temp_dirs.path(run_id)
        (scratch / "left").touch()
        (scratch / "k8srcp-1.json").write_text(run_id)
        with rundir.artifacts(run_id) as artifacts:
            text = command or json.dumps({"command": [], "env": {"SECRET": "xyzzy"}})
            artifacts.write("command", text)
        rundir.clean_up(request(run_id, dry_run=dry_run), left_processes=left_processes)
    return scratch


def test_the_temporary_directory_is_deleted_with_the_run(rundirs: RunDirs) -> None:
    """The next run gets only a copy of the discovery cache."""
    first = run(rundirs, "one")
    assert not first.exists()
    with rundirs.open(REF) as rundir:
        rundir.prepare(request("two"), AnsibleSettings())
        (found,) = rundir.temp_dirs.path("two").iterdir()
        assert found.read_text() == "one"
        found.write_text("half of something")
        rundir.prepare(request("three"), AnsibleSettings())
        (found,) = rundir.temp_dirs.path("three").iterdir()
        assert found.read_text() == "one"


def test_an_outdated_discovery_is_kept_neither_here_nor_by_runs_in_progress(
    rundirs: RunDirs,
) -> None:
    """A cache that is written later is kept."""
    run(rundirs, "one")
    with rundirs.open(REF) as rundir:
        rundir.prepare(request("two"), AnsibleSettings())
        rundirs.forget_discovery()
        rundir.clean_up(request("two"), left_processes=False)
        rundir.prepare(request("three"), AnsibleSettings())
        assert not list(rundir.temp_dirs.path("three").iterdir())
        wait_for_new_timestamp(rundirs.base.parent)
        (rundir.temp_dirs.path("three") / "k8srcp-1.json").write_text("three")
        rundir.clean_up(request("three"), left_processes=False)
        rundir.prepare(request("four"), AnsibleSettings())
        (found,) = rundir.temp_dirs.path("four").iterdir()
        assert found.read_text() == "three"


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


def test_runs_of_a_resource_with_a_colon_in_its_name_are_found(rundirs: RunDirs) -> None:
    """KUBECONFIG is a list of paths with colons between them, and RBAC names have colons."""
    ref = ObjectRef(REF.gvk, "default", "system:node")
    with rundirs.open(ref) as rundir:
        rundir.prepare(request("one"), AnsibleSettings())
        assert ":" not in str(rundir.kubeconfig)
    assert list(recorded_resources(rundirs.base)) == [ref]
