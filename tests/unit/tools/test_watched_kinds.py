"""What operators that answer watch."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.tools.operator_api.watched_kinds import exclusion, other_namespaces, parse


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


NO = {"matchLabels": {"copied": "no"}}


@pytest.mark.parametrize(
    ("kinds", "namespaces", "reason"),
    [
        ([], ["other"], ""),
        ([kind()], [], ""),
        ([kind()], ["other"], "no operator that answers watches namespace web"),
        ([kind(NO)], [], "no watch selects its labels"),
        ([{**kind(), "when": "a"}], [], "reconciled only if `when` is true: a"),
        ([{**kind(NO), "when": "a"}, kind(NO)], [], "no watch selects its labels"),
        ([{**kind(), "when": "a"}, kind(NO)], [], "reconciled only if `when` is true: a"),
        ([{**kind(), "when": "a"}, kind()], [], ""),
        (
            [{**kind(), "when": "a"}, {**kind(), "when": "b"}],
            ["web"],
            "reconciled only if `when` is true: a; or b",
        ),
    ],
)
def test_an_exclusion_has_the_reason_of_the_nearest_watch(
    kinds: list[Json], namespaces: list[str], reason: str
) -> None:
    """A watch without `when` that selects the resource leaves none; expressions stay text."""
    watched = parse({"kinds": kinds, "namespaces": namespaces})
    ref = ObjectRef(GVK("", "v1", "ConfigMap"), "web", "a")
    assert exclusion(ref, {"metadata": {"labels": {"copied": "yes"}}}, watched) == reason


@pytest.mark.parametrize(
    ("namespaces", "others"),
    [([], []), (["web"], []), (["web", "other"], []), (["team2", "team1"], ["team1", "team2"])],
)
def test_the_watched_namespaces_are_named_only_if_another_is_searched(
    namespaces: list[str], others: list[str]
) -> None:
    """Without namespaces an operator watches all of them; one of several operators is enough."""
    watched = parse({"kinds": [kind()], "namespaces": namespaces})
    config, secret = GVK("", "v1", "ConfigMap"), GVK("", "v1", "Secret")
    assert other_namespaces("web", [config, secret], watched) == others
    assert other_namespaces("web", [secret], watched) == []
    everywhere = parse({"kinds": [kind()]})
    assert other_namespaces("web", [config], [*watched, *everywhere]) == []


@pytest.mark.parametrize(
    "kinds", [None, "ConfigMap", [None], ["v1"], [kind({"matchLabels": "all"})], [kind({"x": 1})]]
)
def test_malformed_kinds_are_left_out(kinds: Any) -> None:
    """Other Pods may have the label of operators."""
    assert all(not each.kind.startswith("Config") for each in parse({"kinds": kinds}))
