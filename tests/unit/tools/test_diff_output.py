"""The summary of previews, and the paths in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.core.object_diff import ObjectDifference
from operator_runner.reconcile.preview import Preview
from operator_runner.tools.diff.project import summary, with_relative_paths

PAGE = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
CONFIG = ObjectRef(GVK("", "v1", "ConfigMap"), "default", "home")


def test_the_summary_counts_failed_runs() -> None:
    """Their differences may be incomplete, so that no differences are not the whole result."""
    same, failed = Preview(PAGE), Preview(PAGE, failure="not today")
    assert summary([same, failed]) == "No differences, 2 resources; 1 failed"
    differs = Preview(PAGE, (ObjectDifference(CONFIG, None, {}),))
    assert summary([differs, failed]) == (
        "1 of 2 resources with differences; objects: 1 created; 1 failed"
    )
    assert summary([same]) == "No differences, 1 resource"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/project/roles/page/tasks/main.yml:3", "roles/page/tasks/main.yml:3"),
        ("/project/page.yml:3", "page.yml:3"),
        ("/opt/ansible/roles/page/tasks/main.yml:3", "roles/page/tasks/main.yml:3"),
        ("/opt/ansible/page.yml:3", "/opt/ansible/page.yml:3"),
    ],
)
def test_paths_of_tasks_are_relative_to_the_project(path: str, shown: str) -> None:
    """Also of roles elsewhere, and in the message of a failed run."""
    preview = Preview(
        PAGE,
        unpreviewed=(f"task Migrate (ansible.builtin.command), {path}", "request GET /a"),
        failure=f"not today (task 'Refuse' at {path})",
    )
    found = with_relative_paths(preview, Path("/project"))
    assert found.unpreviewed == (
        f"task Migrate (ansible.builtin.command), {shown}",
        "request GET /a",
    )
    assert found.failure == f"not today (task 'Refuse' at {shown})"
