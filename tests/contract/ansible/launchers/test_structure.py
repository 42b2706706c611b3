"""Structure of plays: roles, includes, imports, handlers, tags, check mode."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

ROLES = {
    "roles/web/meta/main.yml": "dependencies: [{role: base}]\n",
    "roles/web/defaults/main.yml": "number: 80\ntitle: default\n",
    "roles/web/vars/main.yml": "kind: web\n",
    "roles/web/tasks/main.yml": """
- name: Web
  debug: {msg: '{{ kind }} {{ title }}:{{ number }}'}
""",
    "roles/web/tasks/other.yml": """
- name: Other
  debug: {msg: '{{ ansible_role_names | sort }}'}
""",
    "roles/web/templates/page.j2": "{% for word in words %}\n{{ word }}:{{ number }}\n{% endfor %}",
    "roles/web/files/plain": "plain ünï\n",
    "roles/base/tasks/main.yml": "- name: Base\n  set_fact: {based: true}\n",
    "roles/checked/meta/argument_specs.yml": """
argument_specs:
  main: {options: {size: {type: int, required: true}}}
""",
    "roles/checked/tasks/main.yml": "- name: Checked\n  debug: {msg: '{{ size }}'}\n",
}


def test_included_roles_run_the_same_tasks(both: Both) -> None:
    """Roles with dependencies, defaults, files and templates, included and imported."""
    tasks = """
- name: Dynamic
  include_role: {name: web}
  vars: {number: 8080}
- name: Static
  import_role: {name: web, tasks_from: other}
- name: Twice
  include_tasks: more.yml
  loop: [a, b]
- import_tasks: more.yml
  vars: {item: imported}
- name: Public
  include_role: {name: base, public: true, apply: {tags: [x]}}
- name: Variables
  include_vars: {file: extra.yml, name: extra}
- name: Template
  template: {src: ../../web/templates/page.j2, dest: '{{ out }}/page', mode: '0640'}
  vars: {number: 1, words: [x, ü]}
- name: File
  copy: {src: '{{ site }}/roles/web/files/plain', dest: '{{ out }}/'}
- name: Again
  copy: {src: '{{ site }}/roles/web/files/plain', dest: '{{ out }}/'}
- name: Sum
  debug: {msg: '{{ based }} {{ extra.more }}'}
- name: Good
  include_role: {name: checked}
  vars: {size: 3}
- name: Bad
  include_role: {name: checked}
  vars: {size: large}
"""
    files = {
        **ROLES,
        "roles/tried/tasks/more.yml": "- name: More\n  debug: {msg: 'more {{ item }}'}\n",
        "roles/tried/vars/extra.yml": "more: variables\n",
    }
    record = both(Project(tasks, files))
    assert record.result("Web")["msg"] == "web default:8080"
    assert [result["msg"] for _, result in record.ends("More")] == [
        "more a",
        "more b",
        "more imported",
    ]
    assert record.result("Sum")["msg"] == "True variables"
    assert record.files["page"] == "0o100640 x:1\nü:1\n"
    assert record.result("Again")["changed"] is False
    assert "size" in record.outcome.failures[0].message


def test_plays_of_several_files_run_in_order(both: Both) -> None:
    """Several plays of several files, with pre_tasks, roles, post_tasks and vars_files."""
    files = {
        **ROLES,
        "more.yml": "- {name: Imported, hosts: localhost, roles: [base], gather_facts: false}\n",
        "words.yml": "word: from a file\n",
        "site.yml": """
- import_playbook: more.yml
- name: All parts
  hosts: localhost
  gather_facts: false
  vars_files: [words.yml]
  vars: {number: 9}
  pre_tasks: [{name: Before, debug: {var: word}}]
  roles: [{role: web, title: tried}, {role: web, vars: {number: 10}}]
  tasks: [{name: Middle, debug: {msg: '{{ based }}'}}]
  post_tasks: [{name: After, debug: {msg: '{{ role_names }}'}}]
- name: Nobody
  hosts: nowhere
  tasks: [{name: Never, debug: {}}]
- import_playbook: more.yml
  when: false
""",
    }
    record = both(Project(files=files))
    assert record.outcome.successful
    assert record.tasks() == ["Base", "Before", "Base", "Web", "Web", "Middle", "After", "Base"]
    assert record.kinds().count("playbook_on_play_start") == 4
    assert record.result("Before")["word"] == "from a file"


def test_handlers_run_once_in_order(both: Both) -> None:
    """Handlers run once when flushed or at the end, in their order, by name or topic."""
    tasks = """
- name: First
  command: 'true'
  notify: [Restart, both of them]
- name: Second
  command: 'true'
  notify: Restart
- name: Unchanged
  command: 'true'
  changed_when: false
  notify: Unheard
- meta: flush_handlers
- name: Between
  command: 'true'
  notify: [Reload, Included]
"""
    handlers = """
- name: Reload
  command: echo reload
  listen: both of them
- name: Restart
  command: echo restart
  notify: Chained
- name: Chained
  debug: {msg: chained}
- name: Unheard
  command: 'false'
- name: Included
  include_tasks: handled.yml
"""
    files = {
        "roles/tried/handlers/main.yml": handlers,
        "roles/tried/tasks/handled.yml": "- name: Handled\n  debug:\n",
        "roles/tried/handlers/handled.yml": "- name: Handled\n  debug:\n",
    }
    record = both(Project(tasks, files))
    assert record.outcome.successful
    assert record.tasks()[3:] == [
        "meta",
        "Reload",
        "Restart",
        "Chained",
        "Between",
        "Reload",
        "Included",
        "Handled",
    ]
    assert record.kinds().count("playbook_on_notify") > 3


def test_tags_select_tasks(both: Both) -> None:
    """--tags and --skip-tags of --ansible-args choose tasks."""
    tasks = """
- {name: Wanted, debug: {}, tags: [wanted]}
- {name: Both, debug: {}, tags: [wanted, unwanted]}
- {name: Untagged, debug: {}}
- {name: Always, debug: {}, tags: [always]}
- {name: Never, debug: {}, tags: [never]}
"""
    record = both(Project(tasks, args="--tags wanted --skip-tags unwanted"))
    assert record.tasks() == ["Wanted", "Always"]


@pytest.mark.local_only("the temporary directory is that of the Pod")
def test_check_mode_changes_nothing_and_diff_is_shown(both: Both) -> None:
    """--check changes nothing and --diff shows the changes; tasks may override both."""
    tasks = """
- name: Copy
  copy: {content: "new\\n", dest: '{{ site }}/kept'}
- name: Template
  template: {src: words.j2, dest: '{{ site }}/kept', mode: '0600'}
- name: Line
  lineinfile: {path: '{{ site }}/kept', regexp: '^old', line: newer}
- name: Directory
  file: {path: '{{ out }}/dir', state: directory}
- name: Command
  command: touch {{ out }}/command
- name: Really
  copy: {content: real, dest: '{{ out }}/real', mode: '0644'}
  check_mode: false
- name: Quiet
  copy: {content: more, dest: '{{ site }}/kept'}
  diff: false
- name: Mode
  debug: {msg: '{{ ansible_check_mode }} {{ ansible_diff_mode }}'}
"""
    files = {"kept": "old\n", "roles/tried/templates/words.j2": "{{ 'words' }}\n"}
    record = both(Project(tasks, files, args="--check --diff"))
    assert list(record.files) == ["real"]
    assert record.result("Copy")["changed"]
    assert record.kinds(task="Copy").count("runner_on_file_diff") == 1
    assert "-old" in record.stdout
    assert "+words" in record.stdout
    assert record.result("Mode")["msg"] == "True True"
