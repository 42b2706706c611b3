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
    assert record.result("Huge")["text"].endswith("[cut: the first 65472 of 5000000 characters]")
    assert len(record.result("Large")["text"]) == 600_000
    assert record.result("Unicode")["schlüssel"] == ["ä"]
    assert record.result("Not templated")["msg"] == "{{ 1 + 1 }} {% raw %}"
    assert record.result("Argument")["length"] == 300_000
    assert record.result("Täsk ☃ with template")["stdout"] == "ü ☃"
