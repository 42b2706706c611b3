"""Which variables a role or a playbook declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.config.watches.declared_variables import declared_variables
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.model import RunContent


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def declared(root: Path, content: RunContent) -> set[str]:
    lookup = Lookup.of({}, "", str(root / "collections"))
    return set(declared_variables(content, lookup))


@pytest.mark.parametrize(
    "files",
    [
        {"defaults/main.yml": "port: 80\n"},
        {"defaults/main.yaml": "no_log: !vault x\nport: 80\n"},
        {"defaults/main.json": '{"port": 80}'},
        {"defaults/main": "port: 80\n"},
        {"defaults/main/a.yml": "size: 1\n", "defaults/main/deep/b.yml": "port: 80\n"},
        {"meta/argument_specs.yml": "argument_specs: {main: {options: {port: {type: int}}}}\n"},
        {"meta/main.yml": "argument_specs: {other: {options: {port: {type: int}}}}\n"},
    ],
)
def test_a_role_declares_by_defaults_and_argument_specs(
    tmp_path: Path, files: dict[str, str]
) -> None:
    """In every place where Ansible looks for them."""
    write(tmp_path / "web", **files)

    assert "port" in declared(tmp_path, RunContent(role=tmp_path / "web"))


@pytest.mark.parametrize(
    "files",
    [
        {"defaults/main.yml": 'web_port: "{{ port | default(8080) }}"\n'},
        {"templates/web.conf.j2": "listen {% if\n port %}{{ web_port }}{% endif %};\n"},
        {"tasks/main.yml": "- debug:\n  when: port is defined\n"},
        {"tasks/main.yml": "- debug:\n  when:\n    - port is defined\n"},
        {"tasks/other.yml": "- debug: {msg: '{{ port }}'}\n"},
    ],
)
def test_variables_that_a_role_uses_are_declared(tmp_path: Path, files: dict[str, str]) -> None:
    """Roles made for ansible-operator often use fields of the spec without a declaration."""
    write(tmp_path / "web", **files)

    assert "port" in declared(tmp_path, RunContent(role=tmp_path / "web"))
    assert "hosts" not in declared(tmp_path, RunContent(role=tmp_path / "web"))


def test_variables_that_a_role_only_sets_are_not_declared(tmp_path: Path) -> None:
    """vars/ and tasks are the author's own business; broken files declare nothing."""
    write(
        tmp_path / "web",
        **{
            "vars/main.yml": "port: 80\n",
            "tasks/main.yml": "- set_fact: {port: 80}\n  vars: {port: 1}\n",
            "defaults/main.yml": "port: [\n",
        },
    )

    assert declared(tmp_path, RunContent(role=tmp_path / "web")) == set()


def test_roles_that_a_role_runs_count(tmp_path: Path) -> None:
    """Dependencies, and roles that tasks include by name, of collections too."""
    write(
        tmp_path,
        **{
            "roles/web/meta/main.yml": "dependencies: [base, {role: other}]\n",
            "roles/web/tasks/main.yml": "- block: [{include_role: {name: included}}]\n",
            "roles/web/tasks/more.yml": "- ansible.builtin.import_role: {name: a.b.c}\n"
            "- include_role: {name: '{{ any }}'}\n",
            "roles/base/defaults/main.yml": "one: 1\n",
            "roles/base/meta/main.yml": "dependencies: [web]\n",
            "roles/other/defaults/main.yml": "two: 1\n",
            "roles/included/defaults/main.yml": "three: 1\n",
            "collections/ansible_collections/a/b/roles/c/defaults/main.yml": "four: 1\n",
        },
    )

    found = declared(tmp_path, RunContent(role=tmp_path / "roles" / "web"))

    # The last one is used.
    assert found == {"one", "two", "three", "four", "any"}


def test_a_playbook_declares_by_vars_and_roles(tmp_path: Path) -> None:
    """Of each play, of the playbooks that it imports, and of the roles of both."""
    write(
        tmp_path,
        **{
            "site.yml": """
- import_playbook: more.yml
- hosts: localhost
  vars: {port: 80}
  roles: [web]
- hosts: localhost
  vars: [{name: a}]
  tasks: [{block: [{import_role: {name: db}}]}]
""",
            "more.yml": "- {hosts: localhost, vars: {tags: []}}\n",
            "roles/web/defaults/main.yml": "no_log: true\n",
            "roles/db/defaults/main.yml": "timeout: 3\n",
        },
    )

    found = declared(tmp_path, RunContent(playbook=tmp_path / "site.yml"))

    assert found == {"port", "name", "tags", "no_log", "timeout"}
