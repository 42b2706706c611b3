"""Warnings and deprecations of modules, plugins and Ansible: once in each run."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.projects import Project

FILTER = """
from ansible.utils.display import Display
import warnings

display = Display()
display.warning("when the filter is loaded")


def noisy(value):
    display.warning("of the filter")
    display.deprecated("the filter", version="99.0", collection_name="acme.old")
    display.v("seen with -v")
    display.vvv("seen with -vvv")
    display.display("said aloud")
    display.error("no error really")
    warnings.warn("of Python", DeprecationWarning)
    print("printed by the filter")
    return value


class FilterModule:
    def filters(self):
        return {"noisy": noisy}
"""
MODULE = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
import warnings, sys
module = AnsibleModule({"name": {"removed_in_version": "99.0", "removed_from_collection": "x.y"}})
module.warn("of the module")
module.warn("of the module")
module.deprecate("the module", date="2099-01-01", collection_name="acme.old")
warnings.warn("of Python")
module.exit_json(warnings=["of the result"], deprecations=[{"msg": "result", "version": "99.0"}])
"""
TASKS = """
- name: Module
  warning: {name: x}
  loop: [1, 2]
- name: Filter
  debug: {msg: "{{ 'x' | noisy }}"}
- name: Filter again
  debug: {msg: "{{ 'y' | noisy }}"}
- name: Unquoted
  debug: {msg: x}
  when: "{{ true }}"
- name: Shell
  command: echo {{ item }}
  loop: [a]
  loop_control: {loop_var: item}
- name: Mode
  copy: {content: x, dest: '{{ out }}/x', mode: 644}
- name: Same variable
  include_tasks: inner.yml
  loop: [1]
- name: Boolean
  debug: {msg: x}
  when: "'x' and true"
  ignore_errors: true
"""
FILES = {
    "roles/tried/filter_plugins/noisy.py": FILTER,
    "roles/tried/library/warning.py": MODULE,
    "roles/tried/tasks/inner.yml": "- {name: Inner, debug: {msg: x}, loop: [1]}\n",
    "roles/tried/vars/main.yml": "environment: reserved\n",
}


def test_warnings_are_repeated_in_every_run(both: Both) -> None:
    """All are shown, in their places; the second run of a launcher shows them again."""
    first = both(Project(TASKS, FILES))
    assert "when the filter is loaded" in first.stdout
    assert "of the module" in first.stdout
    assert "[DEPRECATION WARNING]" in first.stdout
    second = both(Project(TASKS, FILES))
    assert second.stdout.replace("case2", "case1") == first.stdout


@pytest.mark.slow
def test_verbosity_adds_the_warnings_of_plugins(both: Both) -> None:
    """-v adds the verbose messages of plugins."""
    record = both(Project(TASKS, FILES, verbosity=1))
    assert "seen with -v" in record.stdout
    assert "seen with -vvv" not in record.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8"},
        {"PYTHONUNBUFFERED": "", "PYTHONWARNINGS": "ignore"},
    ],
    ids=["unbuffered", "buffered"],
)
@pytest.mark.slow
def test_the_environment_of_the_operator_applies_to_plays_and_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """Settings of Python's streams in the operator's environment apply to plays and modules."""
    for name in ("LC_ALL", "LANG", "PYTHONUTF8", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    module = """#!/usr/bin/python
import atexit, os, sys
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({})
module.warn("of the module")
streams = {
    name: [getattr(stream, key) for key in (
        "name", "mode", "encoding", "errors", "line_buffering", "write_through", "newlines")]
    for name, stream in (("in", sys.stdin), ("out", sys.stdout), ("err", sys.stderr))
}
atexit.register(lambda: print("after"))
os.system("echo from a child")
module.exit_json(streams=streams, warned=sys.warnoptions, locale=os.environ.get("LC_CTYPE"))
"""
    tasks = "- {name: Streams, streams: }\n- {name: 'ü', debug: {msg: 'ü'}, when: '{{ true }}'}\n"
    with Launchers(AnsibleSettings(skip_facts=True)) as launchers:
        project = Project(tasks, {**FILES, "roles/tried/library/streams.py": module})
        record = Both(launchers, tmp_path)(project)
    assert record.outcome.successful


def test_facts_are_variables_without_a_warning(tmp_path: Path) -> None:
    """ansible-core 2.20 and later warn at each use, unless a setting asks for them."""
    tasks = "- {name: Family, debug: {msg: 'of {{ ansible_os_family }}'}}\n"
    with Launchers(AnsibleSettings()) as launchers:
        record = Both(launchers, tmp_path)(Project(tasks))
    assert "of Debian" in record.stdout
    assert "DEPRECATION" not in record.stdout


def test_the_variable_of_all_variables_is_that_of_each_task(both: Both) -> None:
    """ansible-core 2.20 and later warn of it; a changed variable is changed in it too."""
    tasks = """
- {name: First, debug: {msg: "{{ vars['size'] }} {{ vars.rest }}"}, vars: {rest: [1, a]}}
- {name: Set, set_fact: {size: large, rest: {b: 2}}}
- {name: Second, debug: {msg: "{{ vars['size'] }} {{ vars.rest }}"}}
- {name: Same, debug: {msg: "{{ vars['size'] ~ vars['color'] }}"}, register: shown}
- {name: Kept, set_fact: {kept: "{{ vars['color'] }}", count: "{{ vars | length > 9 }}"}}
- {name: Third, debug: {msg: "{{ kept }} {{ color }} {{ count }} {{ shown.msg }}"}}
- {name: Loop, debug: {msg: "{{ vars['item'] }}"}, loop: "{{ [color, 'blue', vars['color']] }}"}
"""
    defaults = "size: small\ncolor: red\nindirect: '{{ size }}'\n"
    record = both(Project(tasks, {"roles/tried/defaults/main.yml": defaults}))
    assert "small [1, 'a']" in record.stdout
    assert "red red True largered" in record.stdout
