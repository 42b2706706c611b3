"""The table of docs/executor.md: which settings of an ansible.cfg runs do not read."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible import constants

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import NAMES, Launchers
from tests.contract.ansible.launchers.projects import Project

_PAGE = Path(__file__).parents[4] / "docs" / "executor.md"
_TASKS = """
- name: Settings
  debug:
    msg: >-
      {% set found = {} %}{% for name in names %}{{ found.update(
        {name: lookup('config', name, show_origin=True, wantlist=True)[0][1]}) or '' }}{% endfor %}
      origins {{ found | to_json }}
"""
_ALWAYS = {"allow_broken_conditionals", "module_compression"}
"""Whatever runs take instead of these is what the file has here."""
_NOT_READ = {
    "callback_plugins",
    "control_path_dir",
    "fact_caching",
    "home",
    "host_key_checking",
    "interpreter_python",
    "local_tmp",
    "retry_files_enabled",
    "stdout_callback",
}


def test_settings_are_read_as_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting of ansible-core has the value of the file, but for those in the table."""
    config = configparser.ConfigParser(interpolation=None)
    file, keys = tmp_path / "ansible.cfg", {}
    for name, about in constants.config.get_configuration_definitions().items():
        value = _text(about.get("default"))
        if name.startswith("_") or not about.get("ini") or value in {"", "debug"}:
            continue
        section, key = about["ini"][0]["section"], about["ini"][0]["key"]
        if not config.has_section(section):
            config.add_section(section)
        config.set(section, key, str(tmp_path / key) if "{{" in value else value)
        keys[name] = key
    with file.open("w") as output:
        config.write(output)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(file))
    play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
    play += "\n".join(f"    {line}" for line in _TASKS.strip().splitlines())
    with Launchers(AnsibleSettings(skip_facts=True)) as launchers:
        for name in NAMES:
            for project in (
                Project(_TASKS, variables={"names": list(keys)}),
                Project(files={"site.yml": play}, variables={"names": list(keys)}),
            ):
                record = launchers.run(name, project, tmp_path / "place")
                text = record.result("Settings")["msg"].partition("origins ")[2]
                origins: dict[str, str] = json.loads(text)
                found = {keys[each] for each, origin in origins.items() if origin != str(file)}
                of_roles = {"roles_path"} if project.tasks else set()
                assert found - _ALWAYS == _NOT_READ | of_roles
                (tmp_path / f"place-{name}").rename(tmp_path / f"place-{name}-{bool(of_roles)}")
    rows = _PAGE.read_text().partition("| setting | effect |")[2].partition("\n\n")[0]
    documented = {key for row in rows.splitlines()[2:] for key in re.findall(r"`(\w+)`", row)}
    assert documented >= _NOT_READ


def _text(default: Any) -> str:
    """Return a default as a file of settings has it; empty for none."""
    if isinstance(default, list):
        return ",".join(map(str, default))
    return "" if default is None else str(default)
