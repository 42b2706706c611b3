"""Results of modules of any size and content."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project, library

pytestmark = pytest.mark.local_only("results of more than two million characters are emptied")


def test_large_and_unusual_results_are_the_same(both: Both) -> None:
    """Results of five megabytes, of every kind of text, and of deep or odd data."""
    modules = library(
        huge="AnsibleModule({}).exit_json(text='x' * 5_000_000, changed=True)\n",
        large="AnsibleModule({}).exit_json(text='x' * 600_000, changed=True)\n",
        many="AnsibleModule({}).exit_json(items=[{'n': n, 'ü': str(n)} for n in range(3000)])\n",
        unicode_="""
AnsibleModule({'given': {}}).exit_json(
    text='ü 漢字 🎉 \\u2028 \\x00 \\x1b[31m \\ud7ff', **{'schlüssel': ['ä']})
""",
        surrogate="AnsibleModule({}).exit_json(text='\\udcff')\n",
        odd="""
import datetime
AnsibleModule({}).exit_json(
    tuple=(1, 2), set=[*{3}], none=None, true=True, big=2**70, float=1e300, date=str(
        datetime.date(2026, 1, 2)), bytes=b'bytes', day=datetime.date(2026, 1, 2))
""",
        nan="AnsibleModule({}).exit_json(nan=float('nan'))\n",
        unserializable="AnsibleModule({}).exit_json(thing=object())\n",
        deep="""
deep = []
for _ in range(200):
    deep = [deep]
AnsibleModule({}).exit_json(deep=deep)
""",
        templated="AnsibleModule({}).exit_json(text='{{ 1 + 1 }} {% raw %}')\n",
        big_argument="""
module = AnsibleModule({'text': {}})
module.exit_json(length=len(module.params['text']))
""",
    )
    tasks = """
- {name: Huge, huge: , register: huge}
- {name: Length, debug: {msg: '{{ huge.text | length }}'}}
- {name: Large, large: }
- {name: Many, many: }
- {name: Unicode, unicode_: {given: 'ünï ☃'}, register: odd}
- {name: Said, debug: {msg: '{{ odd.text }} {{ odd["schlüssel"] }}'}}
- {name: Surrogate, surrogate: , ignore_errors: true}
- {name: Odd, odd: }
- {name: Nan, nan: , ignore_errors: true}
- {name: Unserializable, unserializable: , ignore_errors: true}
- {name: Deep, deep: }
- {name: Templated, templated: , register: unsafe}
- {name: Not templated, debug: {msg: '{{ unsafe.text }}'}}
- {name: Argument, big_argument: {text: "{{ 'y' * 300000 }}"}}
- name: Täsk ☃ with {{ 'template' }}
  command: echo 'ü ☃'
- name: Shell
  shell: head -c 3000000 /dev/zero | tr '\\0' z
"""
    record = both(Project(tasks, modules))
    assert record.result("Length")["msg"] == "5000000"
    # Events are small; cut values are marked.
    assert record.result("Huge")["text"].count(" of 5000000 characters] ") == 1
    assert len(record.result("Large")["text"]) == 600_000
    assert record.result("Unicode")["schlüssel"] == ["ä"]
    assert record.result("Not templated")["msg"] == "{{ 1 + 1 }} {% raw %}"
    assert record.result("Argument")["length"] == 300_000
    assert record.result("Täsk ☃ with template")["stdout"] == "ü ☃"


def test_registered_variables_are_the_same(both: Both) -> None:
    """Results of each outcome, with values from files, templates and modules."""
    modules = library(
        odd="AnsibleModule({}).exit_json(tuple=(1, 2), text='{{ 1 }}', warnings=['hot'])\n"
    )
    show = (
        "{{ a | type_debug }} {{ a | to_json }} {{ a.values() | map('type_debug') | list }}"
        " {{ a is changed }} {{ a is failed }} {{ a is skipped }}"
    )
    shown = f'- {{name: Show, debug: {{msg: "{show}"}}}}\n'
    outcomes = (
        "odd:",
        "debug: {msg: {n: 8080, f: 1.5, b: true, x: null, t: \"{{ 'x' * 3 }}\", l: ['{{ 2 }}']}}",
        "set_fact: {fact: '{{ [1, 2] }}'}",
        "debug: {msg: never}\n  when: false",
        "fail: {msg: 'is {{ 1 + 1 }}'}\n  ignore_errors: true",
        "debug: {msg: '{{ missing }}'}\n  ignore_errors: true",
        "debug: {msg: '{{ item }}'}\n  loop: [1, {k: 2}]",
        "debug: {msg: '{{ item }}'}\n  loop: []",
        "debug: {msg: 1}\n  changed_when: a.msg == 1\n  failed_when: a.msg == 2",
        "debug: {msg: 1}\n  until: a.msg == 1\n  retries: 2\n  delay: 0",
        "assert: {that: [1 == 1, 2 == 2]}\n  no_log: true",
        "command: echo {{ 8080 }}",
    )
    tasks = "".join(
        f"- name: Do {number}\n  {task}\n  register: a\n{shown}"
        for number, task in enumerate(outcomes)
    )
    # What is done with a variable afterwards does not change another one.
    tasks += """
- {name: First, debug: {msg: {list: [1]}}, register: first}
- {name: Second, set_fact: {second: '{{ first }}'}}
- {name: Change, debug: {msg: "{{ second.msg.list.append(2) }}"}, ignore_errors: true}
- {name: Both, debug: {msg: '{{ first.msg.list }} {{ second.msg.list }}'}}
"""
    record = both(Project(tasks, modules))
    assert record.result("Both")["msg"].startswith("[1]")


def test_parts_of_results_are_registered_the_same(both: Both) -> None:
    """Since ansible-core 2.21 `register` takes expressions; earlier ones refuse the playbook."""
    both(
        Project("""
- {name: Parts, debug: {msg: {a: 1}}, register: {whole: _task.result, a: _task.result.msg.a}}
- {name: Show, debug: {msg: '{{ whole.msg }} {{ a }}'}}
- {name: Missing, debug: {msg: 1}, register: {b: _task.result.none.b}, ignore_errors: true}
- {name: Undefined, debug: {msg: '{{ b }}'}, ignore_errors: true}
""")
    )
