"""The private data dir and the temporary directory of a run, on a real file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from operator_runner.ansible.rundir import RunDirs
from operator_runner.core.model import GVK, ObjectRef, RunContent, RunRequest
from operator_runner.core.settings import AnsibleSettings

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")


def request(run_id: str, keep: int = 2) -> RunRequest:
    return RunRequest(run_id, REF, RunContent(), {}, "the token", 0, keep, None)


@pytest.fixture
def rundirs(tmp_path: Path) -> RunDirs:
    return RunDirs(tmp_path / "work")


def run(rundirs: RunDirs, run_id: str, *, left_processes: bool = False, command: str = "") -> Path:
    """Prepare and close a run that leaves a file and a discovery cache; return its TMPDIR."""
    rundir = rundirs.of(REF)
    rundir.prepare(request(run_id), AnsibleSettings())
    scratch = rundir.temp_dirs.path(run_id)
    (scratch / "left").touch()
    (scratch / "k8srcp-1.json").write_text(run_id)
    with rundir.artifact(run_id, "command") as file:
        file.write(command or json.dumps({"command": [], "env": {"SECRET": "xyzzy"}}))
    rundir.close(request(run_id), left_processes=left_processes)
    return scratch


def test_the_temporary_directory_goes_with_the_run(rundirs: RunDirs) -> None:
    """The next run gets only a copy of the discovery cache."""
    first = run(rundirs, "one")
    assert not first.exists()
    rundir = rundirs.of(REF)
    rundir.prepare(request("two"), AnsibleSettings())
    (found,) = rundir.temp_dirs.path("two").iterdir()
    assert found.read_text() == "one"
    found.write_text("half of something")
    rundir.prepare(request("three"), AnsibleSettings())
    (found,) = rundir.temp_dirs.path("three").iterdir()
    assert found.read_text() == "one"


def test_processes_that_go_on_keep_theirs_a_while(rundirs: RunDirs) -> None:
    """Until the artifacts of their run are rotated away, or the resource goes."""
    kept = run(rundirs, "one", left_processes=True)
    assert kept.exists()
    for later in ("two", "three", "four"):
        run(rundirs, later)
    assert not kept.exists()
    kept = run(rundirs, "five", left_processes=True)
    rundirs.remove(REF)
    assert not kept.exists()


def test_nothing_stays_when_the_last_resource_goes(rundirs: RunDirs) -> None:
    """Neither caches nor empty directories."""
    run(rundirs, "one")
    rundirs.remove(REF)
    assert [path.name for path in rundirs.base.iterdir()] == [".lock"]


@pytest.mark.parametrize("text", ["", '{"command": [], "env": {"SECR'], ids=["whole", "half"])
def test_no_environment_stays_in_artifacts(rundirs: RunDirs, text: str) -> None:
    """Not even where the run was killed while it wrote the file."""
    run(rundirs, "one", command=text)
    left = [path for path in rundirs.of(REF).artifacts("one").rglob("*") if path.is_file()]
    assert "SECR" not in "".join(path.read_text() for path in left)
