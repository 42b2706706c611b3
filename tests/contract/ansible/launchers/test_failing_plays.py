"""Plays that cannot start or continue have the same error with both launchers."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

GOOD = "- debug:\n"


CASES: dict[str, tuple[Project, str | None]] = {
    "yaml": (Project("- debug: [\n"), "YAML parsing failed"),
    "template in yaml": (Project("- name: x\n  debug:\n   msg: a\n  msg: {{ x }}\n"), "msg"),
    "two actions": (Project("- debug: {msg: a}\n  command: b\n"), "conflicting action statements"),
    "module": (Project("- no.such.module: {}\n"), "no.such.module"),
    "keyword": (Project("- debug:\n  no_such_keyword: 1\n"), "no_such_keyword"),
    "no list": (Project("words\n"), "must contain a list of tasks"),
    "import tasks": (Project("- import_tasks: nowhere.yml\n"), "nowhere.yml"),
    "include role": (Project("- include_role: {name: nowhere}\n"), "nowhere"),
    "import role": (Project("- import_role: {name: nowhere}\n"), "nowhere"),
    "vars": (Project(GOOD, {"roles/tried/vars/main.yml": "a: [\n"}), "YAML parsing failed"),
    "dependency": (
        Project(GOOD, {"roles/tried/meta/main.yml": "dependencies: [missing]\n"}),
        "missing",
    ),
    "defaults": (Project(GOOD, {"roles/tried/defaults/main.yml": "- list\n"}), "defaults"),
    "no list of plays": (Project(files={"site.yml": "hosts: localhost\n"}), "playbook"),
    "keyword of a play": (
        Project(files={"site.yml": "- hosts: localhost\n  no_such: 1\n"}),
        "no_such",
    ),
    "empty playbook": (Project(files={"site.yml": ""}), "Empty playbook"),
    "import playbook": (
        Project(files={"site.yml": "- import_playbook: nowhere.yml\n"}),
        "nowhere.yml",
    ),
    "option": (Project(GOOD, args="--no-such-option"), ""),
    "vault password file": (Project(GOOD, args="--vault-password-file /nowhere"), "nowhere"),
    "broken inventory": (Project(GOOD, {"hosts": "[a\n"}, inventory="hosts"), None),
    "no hosts matched": (
        Project(files={"site.yml": "- {hosts: nobody, tasks: [{debug: }]}\n"}),
        "no hosts matched",
    ),
}
"""Plays, and a part of the message of their failure; None: they succeed."""
SHORT = {"yaml", "module", "include role", "vars", "keyword of a play", "no hosts matched"}


@pytest.mark.parametrize(
    ("project", "message"),
    [
        pytest.param(*case, id=name, marks=() if name in SHORT else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
def test_plays_that_cannot_start(both: Both, project: Project, message: str | None) -> None:
    """What Ansible finds while loading reaches the outcome."""
    record = both(project)
    if message is None:
        assert record.outcome.successful
    else:
        assert message in record.outcome.failures[0].message


def test_a_missing_variable_template_or_file_fails_its_task(both: Both) -> None:
    """A task fails because a variable, a template, a condition or a file is missing; others run."""
    tasks = """
- {name: Variable, debug: {msg: '{{ nowhere }}'}, ignore_errors: true}
- {name: Attribute, debug: {msg: '{{ hostvars.localhost.nowhere.to }}'}, ignore_errors: true}
- {name: Template, debug: {msg: '{{ broken'}, ignore_errors: true}
- {name: Condition, debug: {msg: x}, when: nowhere == 1, ignore_errors: true}
- {name: Words, debug: {msg: x}, when: "'text'", ignore_errors: true}
- {name: Loop, debug: {msg: x}, loop: text, ignore_errors: true}
- {name: Until, command: 'true', until: nowhere, retries: 1, delay: 0, ignore_errors: true}
- {name: Failed when, command: 'true', failed_when: nowhere, ignore_errors: true}
- {name: Zero, debug: {msg: '{{ 1 / 0 }}'}, ignore_errors: true}
- {name: Argument, file: {path: /x, state: odd}, ignore_errors: true}
- {name: Missing argument, copy: {content: x}, ignore_errors: true}
- {name: Include, include_tasks: '{{ nowhere }}.yml', ignore_errors: true}
- {name: Handler, command: 'true', notify: nobody}
- {name: Never, debug: {msg: never}}
"""
    record = both(Project(tasks))
    assert "Never" not in record.tasks()
    assert "nobody" in record.stdout
    assert not record.outcome.successful


def test_a_missing_program_is_named(both: Both) -> None:
    """The message has the program of the task; its arguments may be secret."""
    record = both(Project("- command: no-such-program --token=secret\n"))
    message = record.outcome.failures[0].message
    assert "no-such-program" in message
    assert "secret" not in message


def test_forced_handlers_run_and_a_failing_one_fails_the_play(both: Both) -> None:
    """Handlers of a failed play run with force_handlers; a failing handler fails the play."""
    plays = """
- hosts: localhost
  gather_facts: false
  force_handlers: true
  handlers:
    - {name: Forced, debug: {msg: forced}}
    - {name: Bad, command: 'false'}
  tasks:
    - {name: Change, command: 'true', notify: Forced}
    - {name: Break, command: 'false'}
- hosts: localhost
  tasks: [{name: Never, debug: }]
"""
    record = both(Project(files={"site.yml": plays}))
    assert record.tasks() == ["Change", "Break", "Forced"]
    assert record.outcome.failures[0].task == "Break"


def test_meta_tasks_end_plays_hosts_and_batches(both: Both) -> None:
    """A meta task ends plays, hosts and batches; fail and any_errors_fatal end all."""
    plays = """
- hosts: localhost
  gather_facts: false
  tasks:
    - {name: One, debug: }
    - {name: End, meta: end_play}
    - {name: Never, debug: }
- hosts: localhost
  gather_facts: false
  tasks:
    - {name: Two, debug: }
    - {name: End host, meta: end_host, when: true}
    - {name: Never again, debug: }
- hosts: localhost
  gather_facts: false
  roles: [ending]
  post_tasks:
    - {name: Three, debug: }
    - {name: Refresh, meta: refresh_inventory}
    - {name: Timeout, command: sleep 30, timeout: 1}
"""
    files = {
        "site.yml": plays,
        "roles/ending/tasks/main.yml": """
- {name: In role, debug: }
- {name: End role, meta: end_role}
- {name: Not in role, debug: }
""",
    }
    record = both(Project(files=files))
    names = [name for name in record.tasks() if name not in ("meta", "End", "End host", "End role")]
    assert "Never" not in " ".join(names)
    assert "Not in role" not in names
    assert [failure.task for failure in record.outcome.failures] == ["Timeout"]


def test_a_run_over_its_deadline_fails_with_the_same_message(both: Both) -> None:
    """A run that takes too long ends with the same words."""
    project = Project("- name: Hang\n  command: sleep 100\n", hangs="Hang")
    record = both(project)
    assert "timeout" in record.outcome.failures[0].message
    assert record.outcome.failures[0].task.endswith("Hang")
    assert record.outcome.timed_out
