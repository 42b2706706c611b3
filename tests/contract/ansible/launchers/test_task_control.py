"""Control flow: blocks, loops, conditions, includes, handlers, tags."""

from __future__ import annotations

import pytest

from tests.contract.ansible.launchers.launching import Both
from tests.contract.ansible.launchers.projects import Project


@pytest.mark.as_job
def test_rescued_failures_do_not_fail_the_play(both: Both) -> None:
    """Rescued and ignored failures do not fail the play; `always` runs; the last task fails."""
    tasks = """
- block:
    - name: Break
      fail: {msg: broken}
    - name: Never
      debug:
  rescue:
    - name: Told
      debug: {msg: '{{ ansible_failed_task.name }}: {{ ansible_failed_result.msg }}'}
  always:
    - name: Always
      command: 'true'
- name: Ignored
  command: 'false'
  ignore_errors: true
- name: Judged
  command: sh -c 'echo out; echo err >&2; exit 3'
  register: judged
  failed_when: judged.rc == 0
  changed_when: "'out' in judged.stdout"
- block:
    - name: Last
      command: sh -c 'echo why >&2; exit 7'
  always:
    - name: Still
      debug: {msg: still}
"""
    record = both(Project(tasks))
    assert record.tasks() == ["Break", "Told", "Always", "Ignored", "Judged", "Last", "Still"]
    assert record.result("Told")["msg"] == "Break: broken"
    assert record.result("Judged")["stderr"] == "err"
    assert [failure.task for failure in record.outcome.failures] == ["Last"]
    assert (record.exit_status, record.artifacts["status"]) == (2, "failed")
    assert record.events[-1]["event_data"]["rescued"] == {"localhost": 1}
    assert record.events[-1]["event_data"]["ignored"] == {"localhost": 1}


@pytest.mark.as_job
def test_loops_return_a_result_for_each_item(both: Both) -> None:
    """Items, labels, indexes, results of a loop; retries until a condition holds; a pause."""
    tasks = """
- name: Items
  command: echo {{ item }}
  loop: [a, b, c]
  register: items
  changed_when: item == 'b'
- name: Labelled
  debug: {msg: '{{ index }} of {{ ansible_loop.length }}: {{ one.name }}'}
  loop: [{name: x, secret: 1}, {name: y, secret: 2}]
  loop_control: {loop_var: one, index_var: index, label: '{{ one.name }}', extended: true}
- name: Some
  command: test {{ item }} = ok
  loop: [ok, skipped, failed]
  when: item != 'skipped'
  ignore_errors: true
- name: Dictionary
  debug: {msg: '{{ item.key }}={{ item.value }}'}
  loop: '{{ {"k": "v"} | dict2items }}'
- name: Old
  debug: {var: item}
  with_nested: [[1, 2], [x]]
- name: Nothing
  command: 'true'
  loop: []
- name: Until
  shell: echo x >> {{ out }}/count; wc -l < {{ out }}/count
  register: count
  until: count.stdout | int == 3
  retries: 5
  delay: 0
- name: Given up
  command: 'false'
  register: never
  until: never.rc == 0
  retries: 2
  delay: 0
  ignore_errors: true
- name: With a process of its own
  pause: {seconds: 1}
  no_log: true
- name: Sum
  debug: {msg: '{{ items.results | map(attribute="stdout") | join }}'}
"""
    record = both(Project(tasks))
    assert record.outcome.successful
    assert record.result("Sum")["msg"] == "abc"
    assert record.kinds(task="Some")[2:] == [
        "runner_item_on_ok",
        "runner_item_on_skipped",
        "runner_item_on_failed",
        "runner_on_failed",
    ]
    assert record.result("Until")["attempts"] == 3
    assert record.kinds(task="Until").count("runner_retry") == 2
    assert record.result("Given up")["attempts"] == 2
    assert [result["msg"] for _, result in record.ends("Labelled")[:2]] == [
        "0 of 2: x",
        "1 of 2: y",
    ]


@pytest.mark.local_only("types of templates are those of the image's ansible-core")
def test_skipped_tasks_name_their_condition(both: Both) -> None:
    """Skipped tasks have a reason; facts that are set, registered and passed on are kept."""
    tasks = """
- name: Size
  set_fact: {double: '{{ size * 2 }}', words: [a, b]}
- name: Skipped
  command: 'false'
  when: [size > 2, size > 20]
- name: Defined
  debug: {var: words}
  when: words is defined
- name: Asserted
  assert: {that: [double | int == 6, "'a' in words"], success_msg: fine}
- name: Typed
  debug: {msg: '{{ double | type_debug }} {{ words | type_debug }}'}
- name: Stats
  set_stats: {data: {made: '{{ words }}', times: 3}, per_host: true}
- name: Added
  set_stats: {data: {times: 4}, aggregate: true, per_host: true}
- name: Total
  set_stats: {data: {total: 1}}
- name: RejectedObject
  assert: {that: double | int == 7, fail_msg: no seven, quiet: true}
"""
    record = both(Project(tasks, variables={"size": 3}))
    assert record.kinds(task="Skipped")[-1] == "runner_on_skipped"
    assert record.result("Typed")["msg"] == "str list"
    assert record.result("Asserted")["msg"] == "fine"
    assert record.outcome.failures[0].message == "no seven"
    assert record.events[-1]["event_data"]["artifact_data"] == {"total": 1}


@pytest.mark.as_job
def test_conditions_of_older_roles_work(both: Both) -> None:
    """Any value is a condition, as it was before ansible-core 2.19, whose warning is shown."""
    tasks = """
- name: Length
  debug: {msg: x}
  when: name_of_it | length
- name: No length
  debug: {msg: x}
  when: [true, "'' | length"]
- name: Text
  debug: {msg: x}
  when: name_of_it | default('')
- name: Until
  command: echo ready
  register: told
  until: told.stdout
- name: Assertion
  assert: {that: told.stdout_lines}
"""
    record = both(Project(tasks, variables={"name_of_it": "web"}))
    assert record.outcome.successful
    assert record.tasks() == ["Length", "No length", "Text", "Until", "Assertion"]
    ended = {task: record.kinds(task=task)[-1] for task in ("Length", "No length", "Text")}
    skipped = "runner_on_skipped"
    assert ended == {"Length": "runner_on_ok", "No length": skipped, "Text": "runner_on_ok"}
    assert "Conditional result" in record.stdout


def test_conditions_of_older_roles_look_at_types_of_what_is_undefined(both: Both) -> None:
    """It has none of them, as in ansible-core 2.18; a condition without `else` is false."""
    tasks = """
- {name: Type, debug: {msg: x}, when: no_such is string or no_such.at_all is number}
- {name: Negated, debug: {msg: x}, when: no_such is not mapping}
- {name: Implicit else, debug: {msg: x}, when: "'a' if no_such is defined"}
"""
    record = both(Project(tasks))
    assert record.outcome.successful
    kinds = [record.kinds(task=task)[-1] for task in ("Type", "Negated", "Implicit else")]
    assert kinds == ["runner_on_skipped", "runner_on_ok", "runner_on_skipped"]
