"""Fields are taken over from managers that a role overrules."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.proxy.managed_fields import taken_over

OWN = "page.example.com"


def entry(manager: str, fields: dict[str, Any], operation: str = "Update", **more: str) -> Any:
    found = {"manager": manager, "operation": operation, "apiVersion": "apps/v1"}
    return found | {"fieldsType": "FieldsV1", "fieldsV1": fields} | more


def test_fields_of_overruled_managers_become_those_of_the_role() -> None:
    """Together with its own, once each; entries of others stay, and so do labels by kubectl."""
    labels: dict[str, Any] = {"f:labels": {"f:team": {}}}
    others = entry("helm", {"f:metadata": {"f:labels": {"f:x": {}}}})
    entries = [
        entry(
            OWN, {"f:spec": {"f:a": {}, "f:b": {"f:c": {}}}}, "Apply", time="2026-01-01T00:00:00Z"
        ),
        others,
        entry("kubectl-edit", {"f:spec": {"f:b": {"f:d": {}}, "f:e": {}}, "f:metadata": labels}),
        entry("OpenAPI-Generator", {"f:spec": {"f:a": {}}, "f:data": {}}),
    ]
    fields: dict[str, Any] = {
        "f:spec": {"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}, "f:e": {}},
        "f:data": {},
    }
    shared = entry("kubectl-edit", {"f:metadata": labels})
    assert taken_over(entries, OWN, "apps/v1") == [others, shared, entry(OWN, fields, "Apply")]
    assert taken_over(entries[:2], OWN, "apps/v1") is None


@pytest.mark.parametrize(
    "other",
    [
        entry("kubectl-rollout", {"f:spec": {}}),
        entry("kubectl", {"f:spec": {}}, subresource="scale"),
        entry("kubectl-edit", {"f:spec": {}}, apiVersion="apps/v1beta1"),
        entry("kube-controller-manager", {"f:spec": {}}),
        entry("mykubectl", {"f:spec": {}}),
        entry("kubectl-annotate", {"f:metadata": {"f:annotations": {"f:note": {}}}}),
    ],
)
def test_other_entries_stay(other: Any) -> None:
    """A restart is not undone, and replicas belong to whoever scales, unless the role sets them."""
    assert taken_over([other], OWN, "apps/v1") is None
