"""What `validate` reports about later versions is what the installed ansible-core reports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ansible.release import __version__

from operator_runner.ansible.cold.playbook import PROGRAM
from operator_runner.tools.validate.conditions import FACTS
from tests.contract.tools.validate.test_validate import validate, write

VERSION = tuple(int(part) for part in __version__.split(".")[:2])
LENIENT = {"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "true"}
CONDITIONS: list[Any] = [
    *("text | length", "text | default('')", "{{ nothing | default([]) }}", "'yes'", "1", 1, ""),
    *("text is defined and text | length", "text | regex_search('a')", "text.split('a')"),
    *("{{ text == 'abc' }}", "{{ text }} == 'abc'", "{{ flag }} and {{ flag }}", "text ~ 'a'"),
    *('text == "{{ text }}"', "query('env', 'HOME')", "flag | ternary('a', 'b')", "none"),
    *("text | list", "number - 1", "{{ flag | bool }}", "nothing | default(none)"),
]
"""Conditions that are reported; the rest are not."""
BOOLEANS: list[Any] = [
    *(True, "flag", "{{ condition }}", "text | length > 0", "not text", "text is search('a')"),
    *("flag | default(false)", "text in ['abc']", "flag and text == 'abc'", "text.startswith('a')"),
    *("flag | ternary(true, false)", "lookup('vars', 'flag')", "'a' and flag", "[] or flag"),
]
REPORTED = re.compile(r"\[DEPRECATION WARNING\]|\[ERROR\]|\[WARNING\]: Jinja constant strings")


def play(folder: Path, tasks: list[Any], *, facts: bool = False) -> str:
    """Run tasks with ansible-playbook, and return the output with warnings where they occur."""
    variables = {"text": "abc", "flag": True, "number": 2, "condition": "text == 'abc'"}
    head = {"hosts": "localhost", "gather_facts": facts, "vars": variables}
    # A line for each task: equal messages of one place are reported once.
    lines = "".join(f"    - {json.dumps(task)}\n" for task in tasks)
    text = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in head.items())
    (folder / "play.yml").write_text(f"-{text[1:]}  tasks:\n{lines}")
    # The socket of ansible-core's RPC server is in TMPDIR, which is too long for it in `folder`.
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ansible.cli.playbook", "play.yml"],
            cwd=folder,
            env={**os.environ, "TMPDIR": temporary, **LENIENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return done.stdout


def reported_tasks(output: str) -> set[str]:
    """Return the names of tasks for which Ansible reports something."""
    parts = re.split(r"^TASK \[(\w+)\]", output, flags=re.MULTILINE)[1:]
    return {
        name for name, text in zip(parts[::2], parts[1::2], strict=True) if REPORTED.search(text)
    }


def test_conditions_are_reported_as_ansible_core_does(tmp_path: Path) -> None:
    """Each that is reported is deprecated or fails there, and no other."""
    tasks = [
        {"name": f"T{number}", "debug": {"msg": "a"}, "when": condition, "ignore_errors": True}
        for number, condition in enumerate([*CONDITIONS, *BOOLEANS])
    ]
    expected = {f"T{number}" for number in range(len(CONDITIONS))}
    assert reported_tasks(play(tmp_path, tasks)) == expected
    lines = "".join(f"- {json.dumps(task)}\n" for task in tasks)
    files = {
        "roles/site/tasks/main.yml": lines,
        "roles/site/defaults/main.yml": "text: abc\nflag: true\nnumber: 2\ncondition: flag\n",
    }
    found = re.findall(
        r"^Warning: .*main.yml:(\d+):",
        validate(write(tmp_path, files), "--all").stderr,
        re.MULTILINE,
    )
    assert {f"T{int(line) - 1}" for line in found} == expected


def test_forms_of_tasks_are_deprecated(tmp_path: Path) -> None:
    """The installed ansible-core reports each of them."""
    (tmp_path / "more").mkdir()
    tasks = [
        {"action": {"module": "debug", "msg": "a"}},
        {"debug": None, "args": None},
        {"command": "true chdir=/", "args": {"creates": "/nowhere"}},
    ]
    output = play(tmp_path, tasks)
    assert output.count("[DEPRECATION WARNING]") == len(tasks)
    lines = "".join(f"- {json.dumps(task)}\n" for task in tasks)
    done = validate(write(tmp_path, {"roles/site/tasks/main.yml": lines}))
    assert [each.split(": ")[1] for each in done.stderr.splitlines()] == [
        f"roles/site/tasks/main.yml:{number}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("name", ["ansible_distribution", "vars.inventory_hostname"])
def test_names_are_deprecated_since_2_20(tmp_path: Path, name: str) -> None:
    """Older versions report nothing yet."""
    output = play(tmp_path, [{"debug": {"msg": f"{{{{ {name} }}}}"}}], facts=True)
    assert ("[DEPRECATION WARNING]" in output) is (VERSION >= (2, 20))


def test_all_facts_of_setup_are_listed(tmp_path: Path) -> None:
    """Except names of network interfaces, and keys that are not facts of the host."""
    template = "{{ ansible_facts | to_json }}"
    play(tmp_path, [{"copy": {"content": template, "dest": f"{tmp_path}/facts"}}], facts=True)
    facts = json.loads((tmp_path / "facts").read_text())
    interfaces = {each.replace("-", "_") for each in facts["interfaces"]}
    others = {"_ansible_facts_gathered", "ansible_local", "gather_subset", "module_setup"}
    names = {each for each in facts if not each.startswith(("ssh_host_key_", "discovered_"))}
    assert names - FACTS - interfaces - others - {"flags"} == set()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("", "Debian"), ("[defaults]\ninject_facts_as_vars = false\n", "none")],
)
def test_facts_stay_variables_without_a_warning_unless_the_project_decides(
    tmp_path: Path, setting: str, expected: str
) -> None:
    """Runs ask for injected facts; ansible.cfg takes precedence."""
    (tmp_path / "ansible.cfg").write_text(setting)
    text = "{{ 'none' if ansible_os_family is not defined else ansible_os_family }}"
    tasks = [{"debug": {"msg": f"family {text}"}}]
    plays = [{"hosts": "localhost", "gather_facts": True, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    done = subprocess.run(
        [*PROGRAM, "play.yml"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert f"family {expected}" in done.stdout
    assert "DEPRECATION" not in done.stderr


def test_a_map_of_names_is_a_register(tmp_path: Path) -> None:
    """Its names are variables, and `_task` is known; before 2.21 it is an error."""
    tasks = (
        "- command: ls\n  register: {lines: _task.result.stdout_lines}\n"
        "  changed_when: _task.result.rc == 1\n"
        "- debug: {msg: '{{ lines }}'}\n"
    )
    done = validate(write(tmp_path, {"roles/site/tasks/main.yml": tasks}))
    is_known = VERSION >= (2, 21)
    assert (done.returncode == 0) is is_known
    assert ("a map as `register` needs ansible-core 2.21" in done.stderr) is not is_known
    assert "undefined" not in done.stderr
    output = play(tmp_path, [{"command": "ls", "register": {"lines": "_task.result.rc"}}])
    assert ("Invalid variable name" in output) is not is_known


def test_plugins_and_variables_of_included_roles_are_known(tmp_path: Path) -> None:
    """A role that a task includes has its own filters, and a template sets names in branches."""
    plugin = (
        "class FilterModule:\n    def filters(self):\n        return {'twice': lambda v: v * 2}\n"
    )
    page = (
        "{% if site_title %}{% set a = 1 %}{% if a %}{% set a = 2 %}{% endif %}{{ a }}{% endif %}\n"
    )
    files = {
        "roles/site/tasks/main.yml": "- include_role: {name: part}\n",
        "roles/part/tasks/main.yml": (
            "- debug: {msg: '{{ site_title | twice }}'}\n"
            "- debug:\n    msg: \"{{ lookup('template', '{{ item }}.j2') }}\"\n  loop: [page]\n"
        ),
        "roles/part/filter_plugins/twice.py": plugin,
        "roles/part/templates/page.j2": page,
    }
    done = validate(write(tmp_path, files))
    assert done.returncode == 0
    assert done.stderr == (
        "Warning: roles/part/tasks/main.yml:3: a template within a text of an expression is not "
        "evaluated by ansible-core 2.23: use the variable without quotes and {{ }}\n"
    )
