"""Facts: a warm run has those of a cold one, though most of them were gathered before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import Json
from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import Launchers
from tests.contract.ansible.launchers.projects import Project

MOMENT = {
    *("ansible_date_time", "ansible_loadavg", "ansible_uptime_seconds", "ansible_memory_mb"),
    *("ansible_memfree_mb", "ansible_swapfree_mb"),
}
"""Facts of the moment at which they are gathered."""
SIZES = ("block_", "inode_", "size_")
OWN = {"_", "SHLVL", "OLDPWD", "PYTEST_CURRENT_TEST"}
"""Variables that a shell, or pytest, sets for each program."""
ROLE = Project("- debug: {var: ansible_facts.distribution}\n")
PLAYBOOK = Project(
    files={
        "site.yml": """
- hosts: localhost
  tasks:
  - name: All
    setup:
  - name: Subset
    setup: {gather_subset: ['!all', network, '!facter'], gather_timeout: 5}
  - name: Least
    setup: {gather_subset: ['!all', '!min']}
  - name: Filter
    setup: {filter: ['ansible_dist*', 'ansible_mounts', hostname]}
  - name: Own
    setup: {fact_path: '{{ site }}/facts', gather_subset: ['!all', local]}
  - name: Another locale
    setup: {gather_subset: hardware}
    environment: {LC_ALL: C}
  - name: Another path
    setup:
    environment: {PATH: '/usr/bin:/bin'}
  - name: Timeout
    setup:
    timeout: 600
""",
        "facts/made.fact": '#!/bin/sh\necho \'{"by": "a program"}\'\n',
    }
)
COMPLAINING = Project(
    files={
        "site.yml": """
- hosts: localhost
  gather_facts: false
  tasks:
  - name: Warning
    setup: {fact_path: '{{ site }}/facts', gather_subset: ['!all', '!min', local]}
  - name: Unknown subset
    setup: {gather_subset: nothing}
    ignore_errors: true
  - name: Unknown option
    setup: {subset: network}
    ignore_errors: true
  - name: Without a trace
    setup: {gather_subset: ['!all', '!min', python]}
""",
        "facts/broken.fact": "neither JSON nor INI\n",
    }
)
COMPLAINTS = ("Warning", "Unknown subset", "Unknown option", "Without a trace")
GATHERING = "Gathering Facts"
TASKS = (
    *(GATHERING, "All", "Subset", "Least", "Filter", "Own", "Another locale", "Another path"),
    "Timeout",
)


class Program:
    """A program that facts are gathered with, first on PATH; it counts its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder.with_name("calls")
        folder.mkdir()
        program = folder / "capsh"
        program.write_text(f"#!/bin/sh\necho called >> {self._calls}\necho 'Current: =ep'\n")
        program.chmod(0o755)

    @property
    def calls(self) -> int:
        """How often it was called until now."""
        return len(self._calls.read_text().splitlines()) if self._calls.exists() else 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Put the program on PATH."""
    return Program(tmp_path_factory.mktemp("facts") / "bin")


@pytest.fixture(scope="module")
def launchers(program: Program, steady_environment: None) -> Iterator[Launchers]:
    """Open launchers whose runs gather facts."""
    del steady_environment
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(program.folder), prepend=":")
        with Launchers(AnsibleSettings()) as opened:
            yield opened


def settle(launchers: Launchers, program: Program, place: Path) -> None:
    """Run warm until facts are cached: that run starts no program for them.

    The first one starts the gathering, and gathers itself.
    """
    for number in range(60):
        before = program.calls
        launchers.run("warm", ROLE, place / f"settling{number}")
        if program.calls == before:
            return
    raise AssertionError("60 runs in a row have gathered facts themselves")


def test_a_role_has_the_facts_of_a_cold_run(
    launchers: Launchers, program: Program, tmp_path: Path
) -> None:
    """All keys are there, and all values but those of the moment are the same."""
    settle(launchers, program, tmp_path)
    warm, cold = (facts_of(launchers, name, ROLE, tmp_path / "case") for name in ("warm", "cold"))
    assert len(warm[GATHERING]) > 50
    assert warm == cold


@pytest.mark.slow
def test_a_playbook_gets_the_requested_facts(
    launchers: Launchers, program: Program, tmp_path: Path
) -> None:
    """Subsets, filters, custom facts and the environment of a task count as they do cold."""
    settle(launchers, program, tmp_path)
    found = [facts_of(launchers, name, PLAYBOOK, tmp_path / "case") for name in ("warm", "cold")]
    assert found[0] == found[1]
    assert found[0]["Own"]["ansible_local"] == {"made": {"by": "a program"}}
    assert "ansible_devices" not in found[0]["Subset"]


@pytest.mark.slow
def test_complaints_are_those_of_a_cold_run(
    launchers: Launchers, program: Program, tmp_path: Path
) -> None:
    """Warnings and failures of the module, and nothing of them in the task after it."""
    settle(launchers, program, tmp_path)
    warm, cold = (launchers.run(name, COMPLAINING, tmp_path / "case") for name in ("warm", "cold"))
    assert [warm.result(task) for task in COMPLAINTS] == [cold.result(task) for task in COMPLAINTS]
    assert warm.result("Warning")["warnings"]


def test_facts_are_gathered_again_after_a_change(
    launchers: Launchers, program: Program, tmp_path: Path
) -> None:
    """The next run gathers itself where a program has come; those after it need not."""
    settle(launchers, program, tmp_path / "before")
    before = program.calls
    (program.folder / "another").write_text("#!/bin/sh\n")
    launchers.run("warm", ROLE, tmp_path / "case")
    assert program.calls > before
    settle(launchers, program, tmp_path / "after")


def facts_of(launchers: Launchers, name: str, project: Project, place: Path) -> dict[str, Json]:
    """Return the results of the tasks that gather facts, without values that always change."""
    record = launchers.run(name, project, place)
    assert record.outcome.successful
    tasks = [task for task in TASKS if task in record.tasks()]
    return {task: _steady(record.result(task)["ansible_facts"]) for task in tasks}


def _steady(facts: Json) -> Json:
    steady = {key: value for key, value in facts.items() if key not in MOMENT}
    for key in MOMENT & {*facts}:
        steady[key] = type(facts[key]).__name__
    if "ansible_env" in facts:
        own = {name: value for name, value in facts["ansible_env"].items() if name not in OWN}
        steady["ansible_env"] = own
    if isinstance(facts.get("ansible_mounts"), list):
        steady["ansible_mounts"] = [
            {key: value for key, value in mount.items() if not key.startswith(SIZES)}
            for mount in facts["ansible_mounts"]
        ]
    return {key: _ordered(value) for key, value in steady.items()}


def _ordered(value: Any) -> Any:
    """Return a value with its lists in one order: ansible-core makes many of them from sets."""
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(_ordered, value), key=lambda each: json.dumps(each, sort_keys=True))
    return value
