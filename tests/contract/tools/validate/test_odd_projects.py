"""`validate` over files with any content: a finding at most, never a traceback."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operator_runner.config.watches import load
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.errors import ConfigError
from operator_runner.tools.validate.check import check
from tests.contract.tools.validate.test_validate import CRD, WATCHES, write

TASKS = """
- name: a
  kubernetes.core.k8s: {state: present, template: page.j2, definition: {kind: ConfigMap}}
  vars: {a: b}
  when: [a is defined, b]
  loop: [1]
  loop_control: {loop_var: x, label: y, break_when: [false]}
  register: z
  tags: [a]
- block: [{include_tasks: more.yml}]
  rescue: [{include_role: {name: part, tasks_from: x}}]
- {set_fact: {a: b}}
- {set_stats: {data: {a: b}}}
- {include_vars: {file: a.yml, dir: x, name: b, ignore_files: a}}
- {template: {src: page.j2, dest: /a}}
- {copy: {src: a, dest: b}}
- {assert: {that: [a == 1]}}
- {debug: {var: a}}
- {action: {module: debug, msg: a}, args: {b: c}}
- {debug: msg=a, with_items: [a], collections: [a.b]}
"""
FILES = {
    "watches.yaml": WATCHES + "- {group: example.com, version: v1, kind: Play, playbook: play.yml}",
    "crds/site.yaml": CRD,
    "requirements.yml": "collections: [a.b, {name: c.d, version: 1.0.0}]",
    "roles/site/tasks/main.yml": TASKS,
    "roles/site/handlers/main.yml": "[{name: a, debug: {msg: b}, listen: [c], notify: [d]}]",
    "roles/site/defaults/main.yml": "{a: 1, b: {c: [d]}}",
    "roles/site/vars/main.yml": "{e: 1}",
    "roles/site/meta/main.yml": "{dependencies: [{role: part}], collections: [a.b]}",
    "roles/site/meta/argument_specs.yml": (
        "{argument_specs: {main: {options: {site_title: {type: str, elements: str,"
        " choices: [a], default: b, options: {c: {type: int}}}}}}}"
    ),
    "roles/part/tasks/x.yml": "[{debug: {msg: '{{ a }}'}}]",
    "play.yml": (
        "[{hosts: localhost, roles: [{role: part, vars: {a: b}}], vars_files: [a.yml],"
        " vars_prompt: [{name: a}], vars: {b: c}, tasks: [{debug: {msg: a}}], collections: [a.b]},"
        " {import_playbook: more.yml}]"
    ),
    "group_vars/all.yml": "{a: b}",
}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    (
        *(None, True, 1, 1.5, "", "a", "{{ a", "{{ a.b }}", [], {}, [None], [[]], [1], {"a": 1}),
        *({1: 2}, {True: {}}, {None: None}, {1.5: [1]}, {"{{ a }}": 1}, [{"a": 1}]),
    )
)
TEXTS = (
    "on: {on: yes}",
    "a: 2020-13-45",
    "a: !!int x",
    "a: &b [*b]",
    "? [a]\n: 1",
    "a: !!binary x",
)


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values within a value."""
    below: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | list):
        below = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *itertools.chain.from_iterable(nodes(each, (*path, key)) for key, each in below)]


def replaced(value: Any, path: tuple[Any, ...], other: Any, key: Any) -> Any:
    """Return a value with another one at a path, which gets another key if `key` is not None."""
    if not path:
        return other
    if isinstance(value, list):
        return [
            replaced(each, path[1:], other, key) if number == path[0] else each
            for number, each in enumerate(value)
        ]
    changed = {
        k: replaced(v, path[1:], other, key) if k == path[0] else v for k, v in value.items()
    }
    if key is not None and len(path) == 1:
        changed[key] = value[path[0]]
    return changed


def findings(project: Path) -> None:
    """Check a project in this process."""
    with suppress(ConfigError):
        watches = load(project / "watches.yaml", {}).watches
        check(watches, project / "watches.yaml", Lookup.of({}, "", "", project))


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(file=st.sampled_from(sorted(FILES)), data=st.data())
def test_no_content_of_a_file_ends_with_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, data: st.DataObject
) -> None:
    """Each value of each file that is read is replaced with values and keys of other types."""
    monkeypatch.chdir(write(tmp_path, FILES))
    documents = [*yaml.safe_load_all(FILES[file])]
    (document,) = documents
    path = data.draw(st.sampled_from(nodes(document)))
    key = data.draw(st.sampled_from([None, True, 1, 1.5, "on"]))
    changed = replaced(document, path, data.draw(ODD), key)
    (tmp_path / file).write_text(yaml.safe_dump(changed, sort_keys=False))
    findings(tmp_path)


@pytest.mark.parametrize("text", TEXTS)
def test_no_yaml_ends_with_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Values that YAML itself cannot make, or that contain themselves, in each file."""
    for file in FILES:
        monkeypatch.chdir(write(tmp_path, {**FILES, file: text}))
        findings(tmp_path)
