"""CRDs that would drop status fields that the operator writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, RunContent, Schedule, Watch
from operator_runner.tools.validate.kinds import (
    incomplete,
    known_groups,
    misspelt_groups,
    unserved,
)

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


def test_a_kind_without_a_crd_is_reported() -> None:
    """Kinds of Kubernetes have none, and a kind of a trigger may be that of another project."""
    pod = replace(PLAIN, gvk=GVK("", "v1", "Pod"))
    ((gvk, message),) = unserved([PLAIN, pod], [])
    assert gvk == KIND
    assert "has no CRD in the project; add the CRD to config/crd/bases" in message
    assert not list(unserved([PLAIN], [crd()]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: app/v1", ("app/v1: did you mean apps/v1?", True)),
        ("- {a: b, 'api_version': 'batc/v1'}", ("batc/v1: did you mean batch/v1?", True)),
        ("apiVersion: Apps/v1", ("Apps/v1: did you mean apps/v1?", True)),
        ("apiVersion: core/v1", ("core/v1: did you mean v1?", True)),
        (
            "apiVersion: shop.exmple.com/v1",
            ("shop.exmple.com/v1: did you mean shop.example.com/v1?", False),
        ),
        (
            "apiVersion: networking.k8s.oi/v1",
            ("networking.k8s.oi/v1: did you mean networking.k8s.io/v1?", False),
        ),
        *(
            (f"apiVersion: {each}/v1", None)
            for each in ("apps", GROUP, "rbac.authorization.k8s.io")
        ),
        ("apiVersion: gateway.networking.k8s.io/v1", None),
        ("apiVersion: snapshot.storage.k8s.io/v1", None),
        ("# apiVersion: app/v1", None),
        ("apiVersion: '{{ group }}/v1'", None),
        ("apiVersion: v1", None),
    ],
)
def test_a_misspelt_group_has_the_nearest_known_one(
    text: str, expected: tuple[str, bool] | None
) -> None:
    """A group without a dot is certainly wrong, and an error; others may exist elsewhere."""
    found = list(misspelt_groups(f"a: b\n{text}\n", known_groups([PLAIN], [])))
    unknown = "unknown group in apiVersion "
    assert found == ([(2, unknown + expected[0], expected[1])] if expected else [])
