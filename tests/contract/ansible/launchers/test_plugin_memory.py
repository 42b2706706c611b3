"""Plugins for templates run in the play or in a worker; the results of tasks are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.ansible.launchers.launching import Both, Launchers
from tests.contract.ansible.launchers.projects import Project

PURE = """
import json
UNITS = {"Ki": 1024}


class FilterModule:
    def filters(self):
        return {"grow": grow, "scale": self.scale}

    def scale(self, number):
        return number * UNITS["Ki"]


def grow(value):
    # Ansible gives copies: the variable does not change.
    value["list"].append(len(value["list"]))
    value["deep"]["more"] = {"grown": True}
    return json.loads(json.dumps(value))
"""
PURE_LOOKUP = """
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        self.seen = getattr(self, "seen", 0) + 1
        return [f"{term} {self.seen} {variables['word']}" for term in terms]
"""
COUNTING = """
import builtins, functools, locale, os, random

CALLS = []


class FilterModule:
    def filters(self):
        return {"meddle": meddle}


@functools.cache
def first(value):
    return [value]


def meddle(value):
    CALLS.append(value)
    builtins.MEDDLED = getattr(builtins, "MEDDLED", 0) + 1
    os.environ["MEDDLED"] = os.environ.get("MEDDLED", "") + "x"
    os.umask(0o077)
    os.chdir("/")
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    random.seed(1)
    return [len(CALLS), builtins.MEDDLED, os.environ["MEDDLED"], first(0), random.random()]
"""
COUNTING_LOOKUP = """
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        variables["things"]["list"].append("lookup")
        return [len(variables["things"]["list"])]
"""
WITNESS = """
import builtins, locale, os
CALLS = [0]


class FilterModule:
    def filters(self):
        return {"witness": witness}


def witness(_):
    mask = os.umask(0)
    os.umask(mask)
    found = [oct(mask), os.path.basename(os.getcwd()), os.environ.get("MEDDLED")]
    return [*found, getattr(builtins, "MEDDLED", 0), locale.setlocale(locale.LC_ALL)]
"""
TASKS = """
- name: Count
  debug: {msg: "{{ 1 | meddle }}"}
- name: Witness
  debug: {msg: "{{ 1 | witness }}"}
- name: Count again
  debug: {msg: "{{ 1 | meddle }} {{ 1 | meddle }}"}
  register: counted
- name: Witness again
  debug: {msg: "{{ 1 | witness }}"}
- name: In a loop
  debug: {msg: "{{ item | meddle }}"}
  loop: [1, 2]
- name: By a variable
  debug: {msg: "{{ by_two }}"}
- name: By a variable again
  debug: {msg: "{{ by_two }} {{ lookup('vars', 'by_' ~ 'one') }}"}
- name: By a computed name
  debug: {msg: "{{ [1] | map(name_of_filter) | list }}"}
- name: In a condition
  debug: {msg: "{{ 1 }}"}
  when: (1 | meddle)[0] == 1
- name: In a block
  block:
    - name: Inside
      debug: {msg: "{{ inner }}"}
  vars: {inner: "{{ 1 | meddle }}"}
- name: In a file
  debug: {msg: "{{ lookup('template', 'counting.j2') }}"}
- name: In a file again
  template: {src: "{{ file }}", dest: "{{ out }}/counted"}
  vars: {file: counting.j2}
- name: Without
  template: {src: plain.j2, dest: "{{ out }}/plain"}
- name: Lookup
  debug: {msg: "{{ lookup('counting_lookup') }}"}
- name: Lookup again
  debug: {msg: "{{ lookup('counting_lookup') }}"}
- name: Variable
  debug: {var: things}
- name: Mode
  command: stat -c %a {{ out }}/plain {{ out }}/counted
"""
DEFAULTS = """
by_one: "{{ 1 | meddle }}"
by_two: "{{ by_one }}"
name_of_filter: meddle
things: {list: [], deep: {}}
"""


def test_plugins_with_memory_meet_none_of_it(both: Both) -> None:
    """A counter, a cache, the environment, cwd, umask, locale and seed begin again in each task."""
    files = {
        "roles/tried/filter_plugins/counting.py": COUNTING,
        "roles/tried/filter_plugins/witness.py": WITNESS,
        "roles/tried/lookup_plugins/counting_lookup.py": COUNTING_LOOKUP,
        "roles/tried/defaults/main.yml": DEFAULTS,
        "roles/tried/templates/counting.j2": "{% include 'parts/inner.j2' %}",
        "roles/tried/templates/parts/inner.j2": "{{ 1 | meddle }}",
        "roles/tried/templates/plain.j2": "{{ things }}",
    }
    record = both(Project(TASKS, files))
    assert record.outcome.successful, record.outcome.failures
    assert record.result("Count")["msg"][:3] == [1, 1, "x"]
    assert record.result("Witness")["msg"] == record.result("Witness again")["msg"]
    assert record.result("By a computed name")["msg"][0][0] == 1
    assert record.result("In a condition")["msg"] == "1"
    assert record.result("Lookup")["msg"] == record.result("Lookup again")["msg"]
    assert record.result("Variable")["things"] == {"list": [], "deep": {}}


@pytest.mark.parametrize("is_collection", [False, True], ids=["role", "collection"])
def test_plugins_without_memory_run_in_the_play(both: Both, *, is_collection: bool) -> None:
    """They change copies of variables, and no task starts a process for them."""
    prefix = "acme.own." if is_collection else ""
    tasks = f"""
- name: Grow
  debug: {{msg: "{{{{ things | {prefix}grow }}}}"}}
- name: Grow again
  debug: {{msg: "{{{{ things | {prefix}grow }}}} {{{{ 2 | {prefix}scale }}}}"}}
- name: Set
  set_fact: {{fact: "{{{{ things | {prefix}grow }}}}"}}
- name: Grow a fact
  debug: {{msg: "{{{{ fact | {prefix}grow }}}} {{{{ fact | {prefix}grow }}}}"}}
- name: Lookup
  debug: {{msg: "{{{{ query('{prefix}seen', 'a') }}}} {{{{ query('{prefix}seen', 'b') }}}}"}}
- name: Variables
  debug: {{msg: "{{{{ things }}}} {{{{ fact }}}}"}}
"""
    root = "collections/ansible_collections/acme/own/plugins"
    folders = [f"{root}/filter", f"{root}/lookup"]
    if not is_collection:
        folders = ["roles/tried/filter_plugins", "roles/tried/lookup_plugins"]
    files = {f"{folders[0]}/pure.py": PURE, f"{folders[1]}/seen.py": PURE_LOOKUP}
    role = {"roles/tried/tasks/main.yml": tasks}
    site = "- {hosts: localhost, gather_facts: false, roles: [tried]}\n"
    variables = {"word": "w", "things": {"list": [], "deep": {}}}
    record = both(Project(files={"site.yml": site, **role, **files}, variables=variables))
    assert record.outcome.successful, record.outcome.failures
    grown = {"list": [0], "deep": {"more": {"grown": True}}}
    assert record.result("Grow")["msg"] == grown
    assert record.result("Variables")["msg"] == f"{variables['things']} {grown}"


def test_only_tasks_that_name_a_plugin_with_memory_have_a_process(
    launchers: Launchers, tmp_path: Path
) -> None:
    """Plugins without memory cost nothing; one with memory costs its own tasks a process."""
    process = "{{ lookup('pipe', 'echo $PPID') }}"
    tasks = f"""
- {{name: None, debug: {{msg: "{process}"}}}}
- {{name: Pure, debug: {{msg: "{process}"}}, when: "(things | grow)['list'] == [0]"}}
- {{name: Plain file, template: {{src: plain.j2, dest: "{{{{ out }}}}/{process}"}}}}
- {{name: Counting, debug: {{msg: "{process}"}}, when: "(1 | meddle)[0] == 1"}}
- {{name: Counting file, debug: {{msg: "{process} {{{{ lookup('template', 'c.j2') }}}}"}}}}
- {{name: Counting variable, debug: {{msg: "{process} {{{{ by_two }}}}"}}}}
"""
    files = {
        "roles/tried/filter_plugins/counting.py": COUNTING,
        "roles/tried/filter_plugins/pure.py": PURE,
        "roles/tried/defaults/main.yml": DEFAULTS,
        "roles/tried/templates/plain.j2": "{{ out }}",
    }
    for name, content in (("pure", "{{ 1 }}"), ("counting", "{{ 1 | meddle }}")):
        files = {**files, "roles/tried/templates/c.j2": content}
        project = Project(tasks, files, variables={"things": {"list": [], "deep": {}}})
        record = launchers.run("warm", project, tmp_path / name)
        assert record.outcome.successful, record.outcome.failures
        message = {
            task: record.result(task)["msg"].split()[0]
            for task in ("None", "Pure", "Counting", "Counting file", "Counting variable")
        }
        play = message["None"]
        assert message["Pure"] == play
        assert (record.result("Plain file")["dest"].endswith(f"/{play}")) is (name == "pure")
        assert (message["Counting file"] == play) is (name == "pure")
        assert play not in {message["Counting"], message["Counting variable"]}
