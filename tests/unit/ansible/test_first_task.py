"""Names of tasks for --start-at-task, and the message about an unknown one."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.ansible.first_task import is_named, names_in, unknown_task
from operator_runner.core.model import RunContent

LISTED = """
playbook: main.json

  play #1 (localhost): localhost\tTAGS: []
    tasks:
      page : Write the page\tTAGS: [write]
      Show TAGS: [a]\tTAGS: []
"""
ROLE = RunContent(role=Path("roles/page"))


def test_names_are_read_from_the_list_of_ansible() -> None:
    """With their roles, without their tags; names of plays are none."""
    assert names_in(LISTED) == ["page : Write the page", "Show TAGS: [a]"]


@pytest.mark.parametrize("wanted", ["Write the page", "page : Write the page", "Write*", "*page"])
def test_a_task_is_named_as_ansible_does(wanted: str) -> None:
    """With or without its role, or by a pattern."""
    assert is_named("page : Write the page", wanted)
    assert not is_named("page : Show the title", wanted)


def test_an_unknown_task_has_similar_names() -> None:
    """Without similar ones, the first tasks of the role."""
    names = ["page : Write the page", "page : Show the title"]
    message = unknown_task("Show the titel", names, ROLE)
    assert "role page has no task of this name; similar names: 'Show the title'." in message
    message = unknown_task("xyz", names, ROLE)
    assert "its first tasks: 'Write the page', 'Show the title'." in message
    assert "it has no tasks." in unknown_task("xyz", [], ROLE)
