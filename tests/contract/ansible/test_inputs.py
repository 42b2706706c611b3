"""Effects of the operator's environment on a run, on a real file system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from operator_runner.ansible.run_spec import run_spec
from operator_runner.ansible.rundir import RunDir, RunDirs
from operator_runner.core.model import GVK, ObjectRef, RunContent, RunRequest
from operator_runner.core.settings import AnsibleSettings

REF = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")
PLAIN = AnsibleSettings()


def request(content: RunContent) -> RunRequest:
    return RunRequest("one", REF, content, {}, "the token", 0, 2, None)


@pytest.fixture
def rundir(tmp_path: Path) -> Iterator[RunDir]:
    """Give a run's directory; the run itself never comes."""
    with RunDirs(tmp_path / "work").open(REF) as prepared:
        yield prepared
        prepared.temp_dirs.remove(prepared.path, "one")


def hosts(rundir: RunDir, inventory: Path | None = None) -> str:
    rundir.prepare(request(RunContent()), replace(PLAIN, inventory=inventory))
    return (rundir.path / "inventory" / "hosts").read_text()


@pytest.mark.parametrize(
    ("environment", "python"),
    [(None, "{{ansible_playbook_python}}"), ("/venv", "/venv/bin/python3")],
)
def test_localhost_has_the_python_of_the_virtual_environment(
    rundir: RunDir, monkeypatch: pytest.MonkeyPatch, environment: str | None, python: str
) -> None:
    """VIRTUAL_ENV names it; without the variable it is the one that runs the play."""
    for name in ("VIRTUAL_ENV", "ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"):
        monkeypatch.delenv(name, raising=False)
    if environment is not None:
        monkeypatch.setenv("VIRTUAL_ENV", environment)

    line = f"localhost ansible_connection=local ansible_python_interpreter={python}"
    assert hosts(rundir) == f"{line} ansible_remote_tmp={rundir.temp_dir('one')}\n"
    monkeypatch.setenv("ANSIBLE_REMOTE_TMP", "/var/tmp")
    assert hosts(rundir) == f"{line}\n"


def test_an_inventory_is_a_file_or_a_directory(rundir: RunDir, tmp_path: Path) -> None:
    """ANSIBLE_INVENTORY may name a file or a directory, and may change from run to run."""
    file = tmp_path / "mine"
    file.write_text("web1\n")
    directory = tmp_path / "many"
    (directory / "group_vars").mkdir(parents=True)
    (directory / "hosts").write_text("db1\n")
    (directory / "group_vars" / "all.yml").write_text("a: 1\n")

    assert hosts(rundir, file) == "web1\n"
    assert hosts(rundir, directory) == "db1\n"
    assert (rundir.path / "inventory" / "group_vars" / "all.yml").read_text() == "a: 1\n"
    assert hosts(rundir, file) == "web1\n"
    assert not (rundir.path / "inventory" / "group_vars").exists()


@pytest.mark.parametrize(("skip", "gather"), [(True, True), (False, False), (False, True)])
def test_roles_gather_facts_by_default(
    rundir: RunDir, tmp_path: Path, skip: bool, gather: bool
) -> None:
    """Unless by `gatherFacts` or ANSIBLE_GATHERING=explicit; a playbook has its own setting."""
    role = RunContent(role=tmp_path / "roles" / "web")
    settings = replace(PLAIN, skip_facts=skip)
    rundir.prepare(request(role), settings)

    spec = run_spec(replace(request(role), gather_facts=gather), rundir, settings)

    (play,) = json.loads((rundir.path / "project" / spec["playbook"]).read_text())
    assert play["gather_facts"] is (gather and not skip)
    assert play["hosts"] == "localhost"
    playbook = RunContent(playbook=tmp_path / "site.yml")
    assert run_spec(request(playbook), rundir, settings)["playbook"] == str(playbook.playbook)
