"""CRDs that would drop the status fields of a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, RunContent, Schedule, Watch
from operator_runner.tools.validate.kinds import without_last_tick

GROUP = "shop.example.com"
KIND = GVK(GROUP, "v1", "Report")
OPEN = {"x-kubernetes-preserve-unknown-fields": True}
WATCH = Watch(KIND, RunContent(role=Path("/roles/report")), schedule=Schedule("spec.cron"))


def crd(**schema: Any) -> Json:
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Report"}
    return {
        "kind": "CustomResourceDefinition",
        "spec": {"group": GROUP, "names": names, "versions": [version]},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"spec": OPEN}},
        {"properties": {"status": {"type": "object"}}},
        {"properties": {"status": {"properties": {"conditions": {}}}}},
        OPEN | {"properties": {"status": {"properties": {"conditions": {}}}}},
    ],
)
def test_a_schema_that_drops_the_last_tick_is_reported(schema: Json) -> None:
    """With the fields to add."""
    ((gvk, message),) = without_last_tick([WATCH], [crd(**schema)])
    assert gvk == KIND
    assert "add `lastScheduleTime: {type: string, format: date-time}`" in message


@pytest.mark.parametrize(
    "schema",
    [
        OPEN,
        {"properties": {"status": OPEN}},
        {"properties": {"status": {"properties": {"lastScheduleTime": {}}}}},
    ],
)
def test_a_schema_with_the_field_is_valid(schema: Json) -> None:
    """It has the field, or keeps unknown ones; a CRD from elsewhere is not known."""
    assert not list(without_last_tick([WATCH], [crd(**schema)]))
    assert not list(without_last_tick([WATCH], []))
