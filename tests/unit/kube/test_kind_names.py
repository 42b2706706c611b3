"""Spellings of resource types that commands take, as kubectl does."""

from __future__ import annotations

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.kind_names import find_kind, matching_kinds, of_resources

WIKI = GVK("apps.example.com", "v1", "Wiki")
ALPHA = GVK("apps.example.com", "v1alpha1", "Wiki")
POD, DEPLOYMENT = GVK("", "v1", "Pod"), GVK("apps", "v1", "Deployment")
ELSEWHERE = (
    ": v2.apps.example.com does not have it; "
    "did you mean wiki.v1.apps.example.com, wiki.v1alpha1.apps.example.com?"
)
KINDS = of_resources(
    (
        ApiResource(POD, "pods", True, aliases=frozenset({"pod", "po"})),
        ApiResource(DEPLOYMENT, "deployments", True, aliases=frozenset({"deployment", "deploy"})),
        ApiResource(WIKI, "wikis", True, aliases=frozenset({"wiki", "wk"})),
        ApiResource(ALPHA, "wikis", True, aliases=frozenset({"wiki", "wk"})),
    )
)


@pytest.mark.parametrize(
    ("text", "gvk"),
    [
        ("wikis", WIKI),
        ("wiki", WIKI),
        ("Wiki", WIKI),
        ("WIKIS", WIKI),
        ("wk", WIKI),
        ("wiki.apps.example.com", WIKI),
        ("wikis.v1alpha1.apps.example.com", ALPHA),
        ("Wiki.v1.apps.example.com", WIKI),
        ("wikis.apps", WIKI),
        ("deploy.apps", DEPLOYMENT),
        ("po", POD),
    ],
)
def test_kinds_are_spelled_as_for_kubectl(text: str, gvk: GVK) -> None:
    """Plural, singular, kind and short names, alone or with group or version and group."""
    assert find_kind(text, KINDS) == gvk


def test_a_whole_group_wins_over_prefixes_of_groups() -> None:
    """A prefix names all kinds of the name in such groups; no kind is an empty list."""
    wikis = [GVK(group, "v1", "Wiki") for group in ("apps.example", "apps.example.com", "other")]
    kinds = of_resources(
        ApiResource(gvk, "wikis", True, aliases=frozenset({"wiki"})) for gvk in wikis
    )
    assert matching_kinds("wiki.apps.example", kinds) == wikis[:1]
    assert matching_kinds("wiki.apps", kinds) == wikis[:2]
    assert matching_kinds("wiki", kinds) == wikis
    assert matching_kinds("wiki.example", kinds) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("wikki", "; did you mean wiki.v1.apps.example.com? If not, install its CRD"),
        ("pds", "; did you mean pod? If not, install its CRD"),
        ("wici", "; did you mean wiki.v1.apps.example.com? If not, install its CRD"),
        ("deposit", "; install its CRD, or correct the name"),
        ("loyment", "; install its CRD, or correct the name"),
        (
            "wiki.v2.apps.example.com",
            ELSEWHERE,
        ),
        ("zebra", "; install its CRD, or correct the name"),
    ],
)
def test_an_unknown_type_names_the_nearest(text: str, hint: str) -> None:
    """A misspelt name, another version or group; otherwise the CRD is missing."""
    with pytest.raises(ConfigError) as excinfo:
        find_kind(text, KINDS)
    assert str(excinfo.value) == f'the resource type "{text}" is unknown{hint}'


def test_several_types_in_one_word_are_an_error() -> None:
    """Unlike for kubectl, which takes `pods,wikis`."""
    with pytest.raises(ConfigError, match="invalid resource type 'pods,wikis': separate several"):
        find_kind("pods,wikis", KINDS)
