"""Types of template results that roles for ansible-core 2.18 rely on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.projects import Project

pytestmark = pytest.mark.local_only("types are those of the image's ansible-core")

TASKS = """
- name: Values
  set_fact:
    values:
      sum: "{{ size + 1 }}"
      same: "{{ size }}"
      cast: "{{ size | int }}"
      of_map: "{{ port.number }}"
      half: "{{ size / 2 }}"
      nothing: "{{ no_such | default(none) }}"
      named_nothing: "{{ unset }}"
      truth: "{{ size > 1 }}"
      word: "{{ 'True' }}"
      list: "{{ [size, size] }}"
      written_list: "[{{ size }}, {{ size }}]"
      json: '{{ ''{"a": [true, null]}'' }}'
      json_text: "{{ {'a': size} | to_json }}"
      one_name: "{{ text }}"
      broken: "{{ '[1' }}"
      inner: "{{ later }}"
      file: "{{ lookup('template', 'plain.j2') }}"
      list_file: "{{ lookup('template', 'list.j2') }}"
      text_file: "{{ lookup('template', 'list.j2', convert_data=false) }}"
      later_text: "{{ later_text }}"
  vars: {later: "{{ size + 2 }}", later_text: "{{ {'a': size} | to_json }}"}
- name: Words
  set_fact: {agreed: "yes", refused: "{{ 'no' }}", json: "{{ port | to_json }}"}
- name: Facts of facts
  set_fact: {facts: ["{{ agreed }}", "{{ refused }}", "{{ json }}", "{{ values.json_text }}"]}
- name: Debug
  debug: {var: size / 2}
- name: Module
  command: {argv: [echo, "{{ json }}"]}
- name: Loop
  debug: {msg: '{{ item + 1 }}'}
  loop: "{{ range(size) | list }}"
- name: Condition
  debug: {msg: x}
  when: size + 1 > 3 and values.sum | int > 3
- name: Copied
  template: {src: map.j2, dest: '{{ out }}/map'}
"""
FILES = {
    "roles/tried/templates/plain.j2": "{{ size }}",
    "roles/tried/templates/list.j2": "[{{ size }}]\n",
    "roles/tried/templates/map.j2": "{'a': {{ size }}}\n",
}
VARIABLES = {"size": 3, "port": {"number": 80}, "unset": None, "text": "{'a': 1}"}
OLD: dict[str, Any] = {
    "sum": "4",
    "same": 3,
    "cast": "3",
    "of_map": "80",
    "half": "1.5",
    "inner": "5",
    "nothing": "",
    "named_nothing": None,
    "truth": True,
    "word": True,
    "list": [3, 3],
    "written_list": [3, 3],
    "json": {"a": [True, None]},
    "json_text": '{"a": 3}',
    "one_name": {"a": 1},
    "broken": "[1",
    "file": "3",
    "list_file": [3],
    "text_file": "[3]\n",
    "later_text": '{"a": 3}',
}
NEW: dict[str, Any] = {
    "sum": 4,
    "same": 3,
    "cast": 3,
    "of_map": 80,
    "half": 1.5,
    "inner": 5,
    "nothing": None,
    "named_nothing": None,
    "truth": True,
    "word": "True",
    "list": [3, 3],
    "written_list": "[3, 3]",
    "json": '{"a": [true, null]}',
    "json_text": '{"a": 3}',
    "one_name": "{'a': 1}",
    "broken": "[1",
    "file": 3,
    "list_file": "[3]\n",
    "text_file": "[3]\n",
    "later_text": '{"a": 3}',
}
ODD = """
- name: Odd
  set_fact:
    age: "{{ ('2020-01-01 10:00:00' | to_datetime) - ('2020-01-01 09:00:00' | to_datetime) }}"
    moment: "{{ '2020-01-01 10:00:00' | to_datetime }}"
    range: "{{ range(size) }}"
    tuple: "{{ (size, size) }}"
"""
TRIED = Project(TASKS, FILES, variables=VARIABLES)


def test_numbers_of_templates_are_text(both: Both) -> None:
    """They are, and text that looks like a map is a map, as in ansible-core 2.18."""
    record = both(TRIED)
    assert record.outcome.successful
    assert record.result("Values")["ansible_facts"]["values"] == OLD
    assert record.kinds(task="Condition")[-1] == "runner_on_ok"
    assert record.result("Copied")["size"] == len("{'a': 3}\n")
    facts = record.result("Facts of facts")["ansible_facts"]["facts"]
    assert facts == [True, False, '{"number": 80}', '{"a": 3}']
    assert record.result("Debug")["size / 2"] == "1.5"
    assert record.result("Module")["stdout"] == '{"number": 80}'


def test_values_of_unsupported_types_are_text(both: Both) -> None:
    """A duration, a moment and a tuple are; ansible-core 2.19 fails on them."""
    facts = both(Project(ODD, variables=VARIABLES)).result("Odd")["ansible_facts"]
    assert facts["age"] == "1:00:00"
    assert facts["tuple"] == "(3, 3)"
    assert facts["range"] == [0, 1, 2]


@pytest.mark.parametrize("where", ["variable", "file"])
def test_native_types_can_be_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """With jinja2_native a template gives the type of its expression."""
    if where == "variable":
        monkeypatch.setenv("ANSIBLE_JINJA2_NATIVE", "true")
    else:
        config = tmp_path / "ansible.cfg"
        config.write_text("[defaults]\njinja2_native = true\n")
        monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    with Launchers(AnsibleSettings(skip_facts=True)) as launchers:
        record = Both(launchers, tmp_path)(TRIED)
    assert record.result("Values")["ansible_facts"]["values"] == json.loads(json.dumps(NEW))
    assert "DEFAULT_JINJA2_NATIVE" not in record.stdout


def test_the_watch_decides_before_all_other_settings(launchers: Launchers, tmp_path: Path) -> None:
    """One fork server runs both: the setting of a watch affects its own runs only."""
    for number, (native, expected) in enumerate([(True, NEW), (False, OLD), (None, OLD)]):
        project = replace(TRIED, native_types=native)
        record = Both(launchers, tmp_path / str(number))(project)
        assert record.result("Values")["ansible_facts"]["values"] == expected
        assert "DEFAULT_JINJA2_NATIVE" not in record.stdout


CHANGING = """
- name: Changed
  debug: {msg: "{{ lookup('template', 'changing.j2') }}"}
  loop: [1, 2]
- name: Unchanged
  debug: {msg: "{{ names | join }}{{ deep.names | join }}{{ deep.more is defined }}{{ names.0 }}"}
"""


@pytest.mark.parametrize("native", [False, True])
def test_a_template_file_changes_values_for_itself_only(both: Both, native: bool) -> None:
    """Whether the lookup copies all values of all variables, or none."""
    changing = (
        "{% set _ = names.append('x') %}{% set _ = deep.names.append('y') %}"
        "{% set _ = deep.update(more=1) %}{{ names | join }}{{ deep.names | join }}"
    )
    files = {"roles/tried/templates/changing.j2": changing}
    variables = {"names": ["a"], "deep": {"names": ["b"]}}
    record = both(Project(CHANGING, files, variables=variables, native_types=native))
    assert record.outcome.successful
    assert [each["msg"] for each in record.result("Changed")["results"]] == ["axby", "axby"]
    assert record.result("Unchanged")["msg"] == "abFalsea"
