"""Whether a role depends on anything but its variables and the objects that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.ansible.purity.content import ContentReader
from operator_runner.ansible.purity.environment import environment_state
from operator_runner.ansible.purity.templates import template_impurities
from operator_runner.config.watches.lookup import Lookup
from operator_runner.core.model import RunContent
from operator_runner.core.settings import AnsibleSettings

PURE = """
- name: Write the settings
  kubernetes.core.k8s:
    template: settings.yaml.j2
    namespace: "{{ ansible_operator_meta.namespace }}"
  when: size | default(1) | int > 0 and items | selectattr('x', 'defined') | list
  loop: "{{ names | map('upper') | list }}"
  register: written
"""


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """Return a role whose inputs are all known."""
    role = tmp_path / "roles" / "web"
    (role / "tasks").mkdir(parents=True)
    (role / "templates").mkdir()
    (role / "tasks" / "main.yml").write_text(PURE)
    (role / "templates" / "settings.yaml.j2").write_text("{% for x in names %}{{ x }}{% endfor %}")
    return role


@pytest.fixture
def reader(tmp_path: Path) -> ContentReader:
    """Return a reader that finds roles in the project alone."""
    return ContentReader(Lookup(tmp_path, (), ()))


def test_a_role_of_known_filters_and_modules_is_pure(role: Path, reader: ContentReader) -> None:
    """It has no impurity, and its digest is the same while no file changes."""
    state = reader.state(RunContent(role=role))
    assert state.impurity == ""
    assert reader.state(RunContent(role=role)) == state


@pytest.mark.parametrize("name", ["tasks/main.yml", "templates/settings.yaml.j2", "files/new"])
def test_every_edited_or_new_file_changes_the_digest(
    role: Path, reader: ContentReader, name: str
) -> None:
    """Also those that only a module reads."""
    before = reader.state(RunContent(role=role)).digest
    (role / name).parent.mkdir(exist_ok=True)
    with (role / name).open("a") as file:
        file.write("# edited\n")
    assert reader.state(RunContent(role=role)).digest != before


@pytest.mark.parametrize(
    "template",
    [
        "{{ now() }}",
        "{{ lookup('env', 'HOME') }}",
        "{{ query('file', path) }}",
        "{% set f = lookup %}{{ f('env', 'HOME') }}",
        "{{ names | random }}",
        "{{ names | shuffle }}",
        "{{ names | map('random') }}",
        "{{ names | map(filter_name) }}",
        "{{ names | select('exists') }}",
        "{{ password | password_hash }}",
        "{{ '%Y' | strftime }}",
        "{{ ansible_date_time.iso8601 }}",
        "{{ vars['ansible_date_time'] }}",
        "{{ hostvars }}",
        "{{ path is exists }}",
        "{{ ('2026-01-01' | to_datetime).now() }}",
        "{{ lipsum() }}",
        "{% include name %}",
        "{% include '/etc/passwd' %}",
        "{{ my.own.filter | my.own.filter }}",
        "{{ unclosed",
    ],
)
def test_templates_with_other_inputs_are_impure(template: str) -> None:
    """Time, chance, files, environment, facts, and all that is not known."""
    assert list(template_impurities(template))


@pytest.mark.parametrize(
    "tasks",
    [
        "- kubernetes.core.k8s: {src: /etc/app.yaml}",
        "- kubernetes.core.k8s: {template: '{{ name }}.j2'}",
        "- kubernetes.core.k8s: {src: ../app.yaml}",
        "- kubernetes.core.k8s: {host: 'https://example.com'}",
        "- kubernetes.core.k8s: {kubeconfig: other}",
        "- kubernetes.core.k8s: '{{ parameters }}'",
        "- {kubernetes.core.k8s: {}, args: {context: other}}",
        "- kubernetes.core.k8s: {template: files/settings.j2}",
        "- {debug: {}, delegate_to: other}",
        "- {debug: {}, environment: {A: b}}",
        "- {debug: {}, with_fileglob: '*'}",
        "- {debug: {var: now()}}",
        "- {assert: {that: [\"lookup('env', 'A')\"]}}",
        "- {block: [{debug: {}, when: path is file}]}",
        "- include_role: {name: '{{ other }}'}",
        "- include_role: {name: unknown}",
    ],
)
def test_tasks_with_other_inputs_are_impure(role: Path, reader: ContentReader, tasks: str) -> None:
    """Files outside of the role, other clusters and hosts, and roles that cannot be found."""
    (role / "tasks" / "main.yml").write_text(tasks)
    assert reader.state(RunContent(role=role)).impurity


def test_included_roles_are_read_too(role: Path, reader: ContentReader) -> None:
    """Their files count, and their impurities."""
    other = role.parent / "other" / "tasks"
    other.mkdir(parents=True)
    (other / "main.yml").write_text("- debug: {msg: hello}")
    (role / "tasks" / "main.yml").write_text("- include_role: {name: other}")
    before = reader.state(RunContent(role=role))
    assert before.impurity == ""
    (other / "main.yml").write_text("- debug: {msg: '{{ now() }}'}")
    after = reader.state(RunContent(role=role))
    assert "now" in after.impurity
    assert after.digest != before.digest


@pytest.mark.parametrize("name", ["settings.j2", "settings.yml", "tasks/settings.j2"])
def test_templates_outside_of_their_directory_are_examined(
    role: Path, reader: ContentReader, name: str
) -> None:
    """Ansible finds them in the directory of the role and beside the tasks too."""
    (role / name).write_text("a: '{{ now() }}'")
    assert "now" in reader.state(RunContent(role=role)).impurity


def test_plugins_of_a_role_are_impure(role: Path, reader: ContentReader) -> None:
    """A filter of its own may do anything, and may have the name of a known one."""
    (role / "filter_plugins").mkdir()
    assert "filter_plugins" in reader.state(RunContent(role=role)).impurity


def test_a_playbook_is_read_with_what_is_beside_it(tmp_path: Path, reader: ContentReader) -> None:
    """Variables of groups count, also those of a new file."""
    playbook = tmp_path / "playbook.yml"
    playbook.write_text("- {hosts: localhost, gather_facts: false, tasks: [{debug: {msg: a}}]}")
    before = reader.state(RunContent(playbook=playbook))
    assert before.impurity == ""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("a: '{{ now() }}'")
    after = reader.state(RunContent(playbook=playbook))
    assert after.digest != before.digest
    assert "now" in after.impurity


def test_files_beside_a_playbook_are_inputs(tmp_path: Path, reader: ContentReader) -> None:
    """Tasks and templates need no directory of their own there."""
    playbook = tmp_path / "playbook.yml"
    playbook.write_text("- {hosts: localhost, tasks: [{include_tasks: other.yml}]}")
    (tmp_path / "unused.yml").write_text("- {hosts: localhost, connection: local}")
    (tmp_path / "other.yml").write_text("- debug: {msg: a}")
    before = reader.state(RunContent(playbook=playbook))
    assert before.impurity == ""
    (tmp_path / "other.yml").write_text("- {debug: {msg: a}, delegate_to: other}")
    after = reader.state(RunContent(playbook=playbook))
    assert after.digest != before.digest
    assert "delegate_to" in after.impurity


def test_settings_of_ansible_are_inputs(tmp_path: Path) -> None:
    """Variables, settings and versions of collections; paths of plugins are impure."""
    base = {"HOME": str(tmp_path), "OTHER": "1"}
    plain = environment_state(AnsibleSettings(), [tmp_path], base)
    assert environment_state(AnsibleSettings(), [tmp_path], base | {"OTHER": "2"}) == plain
    for other in (
        environment_state(AnsibleSettings(), [tmp_path], base | {"ANSIBLE_JINJA2_NATIVE": "1"}),
        environment_state(AnsibleSettings(skip_facts=True), [tmp_path], base),
    ):
        assert other.digest != plain.digest
        assert other.impurity == ""
    manifest = tmp_path / "ansible_collections" / "kubernetes" / "core" / "MANIFEST.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    assert environment_state(AnsibleSettings(), [tmp_path], base).digest != plain.digest
    plugins = base | {"ANSIBLE_FILTER_PLUGINS": "/opt/filters"}
    assert environment_state(AnsibleSettings(), [], plugins).impurity
    assert environment_state(AnsibleSettings(args="-e a=b"), [], base).impurity
    (tmp_path / ".ansible.cfg").write_text("[defaults]\nfilter_plugins = /opt\n")
    assert environment_state(AnsibleSettings(), [], base).impurity
