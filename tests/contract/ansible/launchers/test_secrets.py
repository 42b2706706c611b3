"""Vault and no_log: encrypted values can be read, and hidden ones are censored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def vaulted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Encrypt a file and a word with ansible-vault, as a user does."""
    scratch = tmp_path_factory.mktemp("vault")
    (scratch / "password").write_text(PASSWORD)
    plain = scratch / "vars.yml"
    plain.write_text("of_file: word of the file ü\n")
    program = [str(Path(sys.executable).with_name("ansible-vault"))]
    password = ["--vault-password-file", str(scratch / "password")]
    subprocess.run([*program, "encrypt", *password, str(plain)], check=True, capture_output=True)
    inline = subprocess.run(
        [*program, "encrypt_string", *password, "--name", "inline", "word in a line"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {"vars.yml": plain.read_text(), "inline.yml": inline.stdout}


def test_vault_secrets_are_decrypted(both: Both, vaulted: dict[str, str]) -> None:
    """Encrypted files and values are read with the password file of --ansible-args."""
    tasks = """
- name: Include
  include_vars: '{{ site }}/vars.yml'
- name: Inline
  include_vars: '{{ site }}/inline.yml'
- name: Read
  debug: {msg: '{{ of_file }}, {{ inline }}'}
- name: Used
  command: echo {{ inline }}
- name: Copied
  copy: {src: '{{ site }}/vars.yml', dest: '{{ out }}/plain'}
- name: Looked up
  debug: {msg: "{{ lookup('unvault', site ~ '/vars.yml') }}"}
- name: Filters
  debug: {msg: "{{ 'x' | vault('secret', salt='s') | unvault('secret') }}"}
"""
    files = {**vaulted, "password": PASSWORD}
    args = "--vault-password-file {site}/password"
    record = both(Project(tasks, files, args=args))
    assert record.result("Read")["msg"] == "word of the file ü, word in a line"
    assert record.files["plain"].endswith(" of_file: word of the file ü\n")
    assert record.result("Filters")["msg"] == "x"


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_wrong_vault_password_fails_with_a_reason(
    both: Both, vaulted: dict[str, str], password: str
) -> None:
    """A missing or wrong password fails the run with a reason."""
    files = {**vaulted, "password": password or "none"}
    args = "--vault-password-file {site}/password" if password else ""
    tasks = "- name: Include\n  include_vars: '{{ site }}/vars.yml'\n"
    record = both(Project(tasks, files, args=args))
    assert "decrypt" in record.result("Include")["message"].lower()
    assert not record.outcome.successful


def test_no_log_leaves_no_trace(both: Both) -> None:
    """Tasks, loops, blocks, arguments and failures that are hidden leave no trace."""
    tasks = """
- name: Command
  command: echo {{ word }}
  no_log: true
  register: said
- name: Loop
  command: echo {{ item }}
  loop: ['{{ word }}', '{{ word }}2']
  no_log: true
- no_log: true
  block:
    - name: Blocked
      debug: {msg: '{{ word }}'}
    - name: Failing
      command: sh -c 'echo {{ word }}; exit 1'
      ignore_errors: true
- name: Argument
  hiding: {password: '{{ word }}', name: told}
- name: Argument of a failure
  hiding: {password: '{{ word }}', name: told, fail: true}
  ignore_errors: true
- name: Copied
  copy: {content: '{{ word }}', dest: '{{ site }}/secret'}
  no_log: true
  diff: true
- name: Fact
  set_fact: {hidden: '{{ said.stdout }}'}
  no_log: true
- name: Last
  command: sh -c 'echo {{ hidden }} >&2; exit 1'
  no_log: true
"""
    module = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict(
    password=dict(type="str", no_log=True), name=dict(type="str"), fail=dict(type="bool")))
if module.params["fail"]:
    module.fail_json(msg="it is " + module.params["password"])
module.exit_json(said=[module.params["password"]], name=module.params["name"])
"""
    word = "xyzzyplugh"
    files = {"roles/tried/library/hiding.py": module}
    record = both(Project(tasks, files, variables={"word": word}))
    assert record.result("Argument")["said"] == ["VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"]
    assert record.result("Argument")["name"] == "told"
    assert [failure.task for failure in record.outcome.failures] == ["Last"]
    assert word not in f"{record.events} {record.outcome} {record.artifacts}"


def test_no_log_keeps_changed(both: Both) -> None:
    """A hidden task and loop have `changed` or not, as in Ansible's recap."""
    tasks = """
- name: Changed
  copy: {content: '{{ word }}', dest: '{{ out }}/a'}
  no_log: true
- name: Same
  copy: {content: '{{ word }}', dest: '{{ out }}/a'}
  no_log: true
- name: Changed loop
  copy: {content: '{{ item }}', dest: '{{ out }}/a'}
  loop: ['{{ word }}', '{{ word }}2']
  no_log: true
- name: Same loop
  stat: {path: '{{ item }}'}
  loop: ['{{ word }}', '{{ word }}2']
  no_log: true
"""
    record = both(Project(tasks, variables={"word": "xyzzyplugh"}))
    changed = {name: record.result(name)["changed"] for name in record.tasks()}
    assert changed == {"Changed": True, "Same": False, "Changed loop": True, "Same loop": False}
    assert record.outcome.stats is not None
    assert record.outcome.stats.changed == 2
    assert "xyzzyplugh" not in f"{record.events} {record.artifacts}"
