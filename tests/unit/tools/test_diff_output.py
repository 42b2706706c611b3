"""The summary of previews."""

from __future__ import annotations

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.core.object_diff import ObjectDifference
from operator_runner.reconcile.preview import Preview
from operator_runner.tools.diff.output import summary

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
