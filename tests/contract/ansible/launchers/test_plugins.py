"""Plugins of the user's own, wherever Ansible finds them, and those of collections."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.plugins import collection_files, plugin_files, tasks_of
from tests.contract.ansible.launchers.projects import Project
from tests.contract.ansible.launchers.records import Record


def _assert_used(record: Record, own: str) -> None:
    assert record.outcome.successful, record.outcome.failures
    assert record.result(f"{own} Filter")["msg"] == f"{own} filter of me True False"
    assert record.result(f"{own} Lookup")["msg"].startswith(f"{own} lookup of x for me")
    assert record.result(f"{own} Module")["said"] == f"{own} module me"
    assert record.result(f"{own} Action")["ping"] == f"{own} action for me"


def test_plugins_of_a_role_work_in_it_alone(both: Both) -> None:
    """A role's own modules and plugins work in it, and those of another role beside it."""
    tasks = tasks_of("one") + "- include_role: {name: other}\n"
    files = {
        **plugin_files("one", "roles/tried"),
        **plugin_files("two", "roles/other"),
        "roles/other/tasks/main.yml": tasks_of("two"),
    }
    record = both(Project(tasks, files, variables={"who": "me"}))
    _assert_used(record, "one")
    _assert_used(record, "two")


def test_plugins_beside_the_playbook_are_found(both: Both) -> None:
    """Plugins beside the playbook, those for the whole play and a collection included."""
    plays = f"""
- name: Play
  hosts: localhost
  gather_facts: false
  vars: {{who: me}}
  tasks:
{_indented(tasks_of("beside"))}
    - name: Variable
      debug: {{msg: '{{{{ beside_var }}}}'}}
    - include_role: {{name: acme.nearby.inside}}
"""
    files = {
        "site.yml": plays,
        **plugin_files("beside", "", whole_play=True),
        **collection_files("nearby", "collections"),
    }
    record = both(Project(files=files))
    _assert_used(record, "beside")
    _assert_used(record, "nearby")
    assert record.result("Variable")["msg"] == "beside vars"
    assert "beside callback: Play" in record.stdout


def _indented(tasks: str) -> str:
    return "\n".join(f"    {line}" for line in tasks.strip().splitlines())


@pytest.mark.slow
def test_plugins_in_configured_directories_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ansible.cfg and the environment name directories of plugins, and other settings."""
    configured = tmp_path / "configured"
    monkeypatch.setenv("ANSIBLE_CONFIG", str(configured / "ansible.cfg"))
    for kind in ("test", "callback"):
        path = configured / "by_environment" / kind
        monkeypatch.setenv(f"ANSIBLE_{kind.upper()}_PLUGINS", str(path))
    kinds = ("filter", "lookup", "action", "vars")
    paths = [f"{kind}_plugins = {configured}/{kind}_plugins" for kind in kinds]
    settings = "\n".join(
        [
            "[defaults]",
            *paths,
            f"library = {configured}/library",
            f"module_utils = {configured}/module_utils",
            "any_errors_fatal = true",
            "display_skipped_hosts = false",
            "[diff]",
            "always = true",
        ]
    )
    Project(
        files={
            "ansible.cfg": settings,
            **plugin_files(
                "far",
                "",
                whole_play=True,
                names={
                    f"{kind}_plugins": f"by_environment/{kind}" for kind in ("test", "callback")
                },
            ),
        },
    ).write(configured)
    tasks = tasks_of("far") + "- {name: Skipped, debug: {}, when: false}\n"
    tasks += "- {name: Copy, copy: {content: x, dest: '{{ out }}/x'}}\n"
    with Launchers(AnsibleSettings(skip_facts=True)) as launchers:
        record = Both(launchers, tmp_path)(Project(tasks, variables={"who": "me"}))
    _assert_used(record, "far")
    assert "far callback: localhost" in record.stdout
    assert "skipping" not in record.stdout
    assert "runner_on_file_diff" in record.kinds(task="Copy")


def test_collections_and_roles_are_found_on_their_paths(tmp_path: Path) -> None:
    """--ansible-collections-path and --ansible-roles-path name where to look."""
    tasks = """
- include_role: {name: acme.own.inside}
- name: RejectedObject
  acme.own.own_module:
  ignore_errors: true
- name: Mixed
  debug: {msg: "{{ lookup('acme.own.own_lookup', 'x') | acme.own.own_filter }}"}
"""
    shared = tmp_path / "shared"
    Project(
        files={
            **collection_files("own", "collections"),
            "more/roles/common/tasks/main.yml": tasks,
        },
    ).write(shared)
    plays = "- {hosts: localhost, gather_facts: false, vars: {who: me}, roles: [common]}\n"
    settings = AnsibleSettings(
        skip_facts=True,
        collections_path=str(shared / "collections"),
        roles_path=str(shared / "more" / "roles"),
    )
    with Launchers(settings) as launchers:
        record = Both(launchers, tmp_path)(Project(files={"site.yml": plays}))
    _assert_used(record, "own")
    assert record.result("RejectedObject")["msg"] == "missing required arguments: name"


@pytest.mark.local_only("types of templates are those of the image's ansible-core")
@pytest.mark.slow
def test_filters_tests_and_lookups_of_ansible_work(both: Both) -> None:
    """Filters (json_query too), tests and lookups give the same, as text and as data."""
    tasks = """
- name: Filters
  debug:
    msg:
      query: "{{ things | json_query('[?size > `1`].name') }}"
      community: "{{ things | community.general.json_query('[].size') }}"
      general: "{{ [{'a': 1, 'b': 2}] | community.general.keep_keys(target=['a']) }}"
      net: "{{ 'x' | hash('sha1') }} {{ 'x' | b64encode | b64decode }} {{ 3 | human_readable }}"
      regex: "{{ 'a1b2' | regex_findall('[0-9]') }} {{ 'x.y' | regex_replace('[.]', '-') }}"
      yaml: "{{ things | to_nice_yaml }} {{ '{a: 1}' | from_yaml }} {{ '[1]' | from_json }}"
      merge: "{{ {'a': {'b': 1}} | combine({'a': {'c': 2}}, recursive=true) }}"
      sets: "{{ [1, 2] | union([3]) }} {{ [1, 2] | zip(['a', 'b']) | list }}"
      dates: "{{ '%Y' | strftime(0) }} {{ ('2026-01-02' | to_datetime('%Y-%m-%d')).day }}"
      random: "{{ 100 | random(seed='x') }} {{ [1, 2, 3] | shuffle(seed='x') }}"
      undefined: "{{ nothing | default('none') }} {{ nothing is defined }}"
      tests: "{{ '1.2' is version('1.10', '<') }} {{ 'x' is match('.') }} {{ [1] is subset([1]) }}"
      numbers: '{{ 2 ** 70 }} {{ 0.1 + 0.2 }} {{ true and 1 }}'
      none: '{{ none }}'
      path: "{{ '/a/b.tar.gz' | splitext }} {{ '~' | expanduser }} {{ '$HOME' | expandvars }}"
      html: "{{ '<ü&>' | urlencode }} {{ '<&>' | e }}"
  vars: {things: [{name: x, size: 1}, {name: y, size: 2}]}
- name: Lookups
  debug:
    msg:
      env: "{{ lookup('env', 'HOME') }} {{ lookup('env', 'NO_SUCH', default='none') }}"
      file: "{{ lookup('file', 'words') }}"
      template: "{{ lookup('template', 'page.j2') }}"
      pipe: "{{ lookup('pipe', 'echo piped; pwd') }}"
      lines: "{{ query('lines', 'printf \\"a\\\\nb\\\\n\\"') }}"
      glob: "{{ query('fileglob', 'w*') | map('basename') | list }}"
      first: "{{ lookup('first_found', ['/nowhere', role_path ~ '/files/words']) | basename }}"
      vars: "{{ lookup('vars', 'size') }} {{ query('varnames', '^siz') }}"
      sequence: "{{ query('sequence', 'start=1 end=3') }}"
      ini: "{{ lookup('ini', 'user section=main file=' ~ role_path ~ '/files/words') }}"
      csv: "{{ lookup('csvfile', 'x file=' ~ role_path ~ '/files/csv delimiter=,') }}"
      dict: "{{ query('dict', {'a': 1}) }}"
      indexed: "{{ query('indexed_items', ['a']) }}"
      password: "{{ lookup('password', '/dev/null length=5 chars=x') }}"
      config: "{{ lookup('config', 'DEFAULT_FORKS', 'DEFAULT_TIMEOUT', 'HOST_KEY_CHECKING') }}"
- name: Failing lookup
  debug: {msg: "{{ lookup('file', 'nowhere') }}"}
  ignore_errors: true
- name: Failing filter
  debug: {msg: "{{ 'x' | from_json }}"}
  ignore_errors: true
- name: Unknown filter
  debug: {msg: "{{ 'x' | no_such_filter }}"}
  ignore_errors: true
- name: Unknown variable
  debug: {msg: '{{ nothing.of.the.kind }}'}
"""
    files = {
        "roles/tried/files/words": "[main]\nuser=ü\n",
        "roles/tried/files/csv": "x,1\ny,2\n",
        "roles/tried/templates/page.j2": "{{ size }} {{ template_path | basename }}",
    }
    record = both(Project(tasks, files, variables={"size": 3}))
    filtered = record.result("Filters")["msg"]
    assert (filtered["query"], filtered["community"]) == (["y"], [1, 2])
    assert "piped" in str(record.result("Lookups")["msg"])
    assert [failure.task for failure in record.outcome.failures] == ["Unknown variable"]
