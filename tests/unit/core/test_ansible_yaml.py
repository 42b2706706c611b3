"""Files of roles and playbooks, read without Ansible."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.ansible_yaml import task_keyword, task_variable

TASKS = """
- name: Wait
  command: a
  until: >-
    a.rc == 0
    and b
  vars: {secret: !vault x, until: inner}
- block:
    - name: Within
      debug:
      failed_when: [a, !unsafe "b {{ c }}"]
  rescue:
    - {name: Short, debug: , until: true}
"""


@pytest.mark.parametrize(
    ("line", "keyword", "text"),
    [
        (2, "until", "a.rc == 0 and b"),
        (2, "failed_when", ""),
        (9, "failed_when", "a and b {{ c }}"),
        (13, "until", "true"),
        (3, "until", ""),
        (99, "until", ""),
    ],
)
def test_a_keyword_of_a_task_is_found_by_its_line(
    tmp_path: Path, line: int, keyword: str, text: str
) -> None:
    """As it is written, in one line; other maps of the task do not count."""
    file = tmp_path / "main.yml"
    file.write_text(TASKS)
    assert task_keyword(f"{file}:{line}", keyword) == text


@pytest.mark.parametrize("content", ["- a: [", "", "- \x00", "a: *b", "- &a [*a]"])
def test_a_file_that_cannot_be_read_has_no_keyword(tmp_path: Path, content: str) -> None:
    """Nor has a file that is not there, or a task without a place."""
    file = tmp_path / "main.yml"
    file.write_text(content)
    assert task_keyword(f"{file}:1", "until") == ""
    assert task_keyword(f"{tmp_path}/no.yml:1", "until") == ""
    assert task_keyword("", "until") == ""


BLOCKS = """
- hosts: localhost
  vars: {failure_reason: Play}
  tasks:
    - vars: {failure_reason: Outer}
      block:
        - name: Of the outer block
          debug:
        - vars: {other: 1}
          block:
            - name: Of its own
              debug:
              vars:
                failure_reason: Own
            - debug:
    - debug:
"""


@pytest.mark.parametrize(
    ("line", "reason"), [(7, "Outer"), (11, "Own"), (15, "Outer"), (16, "Play")]
)
def test_a_variable_is_that_of_the_task_or_of_a_block_around_it(
    tmp_path: Path, line: int, reason: str
) -> None:
    """The innermost one that has it; a file without such a task has none."""
    file = tmp_path / "play.yml"
    file.write_text(BLOCKS)
    assert task_variable(f"{file}:{line}", "failure_reason") == reason
    assert task_variable(f"{file}:{line}", "none") == ""
    assert task_variable(f"{file}:99", "failure_reason") == ""
