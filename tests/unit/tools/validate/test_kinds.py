"""CRDs that would drop status fields that the operator writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, RunContent, Schedule, Watch
from operator_runner.tools.validate.kinds import incomplete

GROUP = "shop.example.com"
KIND = GVK(GROUP, "v1", "Report")
OPEN = {"x-kubernetes-preserve-unknown-fields": True}
PLAIN = Watch(KIND, RunContent(role=Path("/roles/report")))
WATCH = replace(PLAIN, schedule=Schedule("spec.cron"), manage_status=False)
CONDITIONS: Json = {"items": {"properties": {"observedGeneration": {}}}}


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
    ((gvk, message),) = incomplete([WATCH], [crd(**schema)])
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
    assert not list(incomplete([WATCH], [crd(**schema)]))
    assert not list(incomplete([WATCH], []))


@pytest.mark.parametrize(
    ("status", "places"),
    [
        (
            {"observedGeneration": {}, "conditions": {"items": {"properties": {}}}},
            "of status.conditions.items",
        ),
        ({"conditions": CONDITIONS}, "properties of status"),
        ({}, "status and status.conditions.items"),
        ({"observedGeneration": {}, "conditions": CONDITIONS}, ""),
        ({"observedGeneration": {}, "conditions": {"items": OPEN}}, ""),
        (None, ""),
    ],
)
def test_a_schema_that_drops_the_generation_is_reported(status: Json | None, places: str) -> None:
    """With the places where it is missing; not for watches whose status is not written."""
    schema = {"status": OPEN if status is None else {"properties": status}}
    found = [message for _, message in incomplete([PLAIN], [crd(properties=schema)])]
    assert [each.endswith(places) for each in found] == [True] * bool(places)
    assert all("`observedGeneration: {type: integer, format: int64}`" in each for each in found)
    unmanaged = replace(PLAIN, manage_status=False)
    assert not list(incomplete([unmanaged], [crd(properties=schema)]))
