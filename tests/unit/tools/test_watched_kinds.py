"""What operators that answer watch."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.tools.operator_api.watched_kinds import parse


def kind(selector: Json | None = None) -> Json:
    found: Json = {"apiVersion": "v1", "kind": "ConfigMap"}
    return found if selector is None else {**found, "selector": selector}


@pytest.mark.parametrize(
    ("document", "has"),
    [
        ({"kinds": [kind()]}, True),
        ({"kinds": [kind({"matchLabels": {"copied": "yes"}})], "namespaces": []}, True),
        ({"kinds": [kind({"matchLabels": {"copied": "no"}})]}, False),
        ({"kinds": [kind()], "namespaces": ["web"]}, True),
        ({"kinds": [kind()], "namespaces": ["other"]}, False),
    ],
)
def test_resources_are_watched_by_namespace_and_labels(document: Json, *, has: bool) -> None:
    """Without a selector and without namespaces, all of the kind are."""
    [watched] = parse(document)
    ref = ObjectRef(GVK("", "v1", "ConfigMap"), "web", "a")
    assert watched.has(ref, {"metadata": {"labels": {"copied": "yes"}}}) is has


@pytest.mark.parametrize(
    "kinds", [None, "ConfigMap", [None], ["v1"], [kind({"matchLabels": "all"})], [kind({"x": 1})]]
)
def test_malformed_kinds_are_left_out(kinds: Any) -> None:
    """Other Pods may have the label of operators."""
    assert all(not each.kind.startswith("Config") for each in parse({"kinds": kinds}))
