"""Names and forms of tasks that later versions of ansible-core refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils.facts
import pytest
from jinja2 import Environment

from operator_runner.tools.validate.conditions import FACTS, of_names, of_task
from operator_runner.tools.validate.expressions import uses

ENVIRONMENT = Environment(autoescape=False)


def names(
    text: str, defined: tuple[str, ...] = (), modules: tuple[str, ...] = ()
) -> list[tuple[int, str]]:
    used = uses(ENVIRONMENT, text)
    return [(line, name) for line, name, _ in of_names(used, defined, modules, {"result"})]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{{ ansible_distribution }}", "ansible_distribution"),
        ("{{ ansible_env.HOME }}", "ansible_env"),
        ("{{ vars['a'] }}", "vars"),
        ("{{ vars | dict2items }}", "vars"),
        ("{{ play_hosts }}", "play_hosts"),
        ("{{ result.invocation.module_args }}", "invocation"),
        ("{{ result.results[0].invocation }}", "invocation"),
        ("{{ lookup('file', '{{ a }}.txt') }}", "{{ a }}.txt"),
    ],
)
def test_a_name_is_reported_with_its_line(text: str, name: str) -> None:
    """Facts, `vars`, `play_hosts`, `invocation`, and templates in the texts of lookups."""
    assert set(names(f"a\n{text}")) == {(2, name)}


@pytest.mark.parametrize(
    "text",
    [
        *("{{ ansible_facts['distribution'] }}", "{{ ansible_facts.env.HOME }}"),
        *("{{ ansible_connection }}", "{{ ansible_check_mode }}", "{{ ansible_host }}"),
        *("{{ ansible_operator_meta.name }}", "{{ ansible_version.full }}", "{{ ansible_local }}"),
        *("{{ distribution }}", "{{ services }}", "{{ lookup('vars', 'a') }}", "{{ a.vars }}"),
        *("{% set ansible_env = {} %}{{ ansible_env }}", "{{ ansible_play_hosts }}"),
        *("{{ other.invocation }}", "{{ result.stdout }}", "{{ lookup('file', 'a.txt') }}"),
    ],
)
def test_other_names_are_not_reported(text: str) -> None:
    """Magic variables, connection variables, and names that the template sets."""
    assert names(text) == []


def test_a_fact_that_the_project_defines_is_its_own() -> None:
    """`set_fact` and fields of the spec may have the name of a fact."""
    assert names("{{ ansible_env }}", defined=("ansible_env",)) == []


def test_facts_of_other_modules_count_if_the_project_uses_these() -> None:
    """`services` is a fact only after service_facts."""
    assert names("{{ services }}", modules=("service_facts",)) == [(1, "services")]


def test_ansible_core_has_each_fact() -> None:
    """A fact that no collector names cannot be injected."""
    folder = Path(ansible.module_utils.facts.__path__[0])
    sources = "".join(path.read_text() for path in folder.rglob("*.py"))
    built = {f"userspace_{each}" for each in ("bits", "architecture")}
    patterns = ("bios_", "board_", "chassis_", "product_")  # from names of files in /sys
    missing = {each for each in FACTS if f"{each}'" not in sources and f'{each}"' not in sources}
    assert {each for each in missing if not each.startswith(patterns)} - built == set()


@pytest.mark.parametrize(
    ("task", "action", "arguments", "message"),
    [
        ({"action": {"module": "debug"}}, "debug", {}, "a map as `action`"),
        ({"ping": None, "args": None}, "ping", None, "an empty `args`"),
        (
            {"command": "ls chdir=/", "args": {"creates": "/a"}},
            "command",
            {"_raw_params": "ls", "chdir": "/"},
            "ignores chdir",
        ),
        ({}, "include_vars", {"dir": "a", "ignore_files": "b c"}, "a text as ignore_files"),
    ],
)
def test_forms_of_tasks(task: dict[str, Any], action: str, arguments: Any, message: str) -> None:
    """Each has the value whose line is reported."""
    assert [message in each for _, each in of_task(task, action, arguments)] == [True]


@pytest.mark.parametrize(
    ("task", "action", "arguments"),
    [
        ({"action": "debug msg=a"}, "debug", {"msg": "a"}),
        ({"command": "ls chdir=/"}, "command", {"_raw_params": "ls", "chdir": "/"}),
        ({"command": "ls", "args": {"chdir": "/"}}, "command", {"_raw_params": "ls"}),
        ({"command": "ls", "args": "{{ a }}"}, "command", "ls"),
        ({"debug": {"msg": "a"}, "args": {"verbosity": 1}}, "debug", {"msg": "a"}),
        ({}, "include_vars", {"dir": "a", "ignore_files": ["b"]}),
    ],
)
def test_forms_that_stay(task: dict[str, Any], action: str, arguments: Any) -> None:
    """Arguments in text alone, or in `args` alone."""
    assert list(of_task(task, action, arguments)) == []
