"""Facts: a warm run gathers those of a cold one."""

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
GATHERING = "Gathering Facts"
TASKS = (
    *(GATHERING, "All", "Subset", "Least", "Filter", "Own", "Another locale", "Another path"),
    "Timeout",
)


@pytest.fixture(scope="module")
def launchers(steady_environment: None) -> Iterator[Launchers]:
    """Open launchers whose runs gather facts."""
    del steady_environment
    with Launchers(AnsibleSettings()) as opened:
        yield opened


def test_a_role_has_the_facts_of_a_cold_run(launchers: Launchers, tmp_path: Path) -> None:
    """All keys are there, and all values but those of the moment are the same."""
    warm, cold = (facts_of(launchers, name, ROLE, tmp_path / "case") for name in ("warm", "cold"))
    assert len(warm[GATHERING]) > 50
    assert warm == cold


@pytest.mark.slow
def test_a_playbook_gets_the_requested_facts(launchers: Launchers, tmp_path: Path) -> None:
    """Subsets, filters, custom facts and the environment of a task count as they do cold."""
    found = [facts_of(launchers, name, PLAYBOOK, tmp_path / "case") for name in ("warm", "cold")]
    assert found[0] == found[1]
    assert found[0]["Own"]["ansible_local"] == {"made": {"by": "a program"}}
    assert "ansible_devices" not in found[0]["Subset"]


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
