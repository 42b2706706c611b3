"""Descriptions of kinds for catalogs, derived from CRDs, samples and permissions."""

from __future__ import annotations

import pytest

from operator_runner.tools.bundle.owned_crds import (
    creatable_kinds,
    descriptors,
    display_name,
    owned_crds,
    sample_resources,
)
from tests.support.manifests import BASE, RULE, SAMPLE, rendered

UI = "urn:alm:descriptor:com.tectonic.ui:"


def test_each_served_version_is_shown() -> None:
    """Versions that are not served are omitted; the rest is derived from schema and permissions."""
    (entry,) = owned_crds(rendered(), BASE, [], [RULE])
    assert (entry["name"], entry["version"], entry["kind"]) == ("webs.example.com", "v1", "Web")
    assert (entry["displayName"], entry["description"]) == ("Web", "A web server")
    assert entry["resources"] == [{"kind": "Deployment", "name": "", "version": "v1"}]
    assert [item["path"] for item in entry["specDescriptors"]] == ["logLevel", "replicas"]
    assert [item["path"] for item in entry["statusDescriptors"]] == ["conditions"]


def test_values_of_the_author_take_precedence() -> None:
    """Names, resources and descriptors of the base override derived ones."""
    written = {
        "name": "webs.example.com",
        "displayName": "Web Server",
        "resources": [{"kind": "Pod", "name": "", "version": "v1"}],
        "specDescriptors": [{"path": "replicas", "displayName": "Copies"}, {"path": "tls.secret"}],
    }
    base = {"spec": {"customresourcedefinitions": {"owned": [written]}}}
    (entry,) = owned_crds(rendered(), base, [], [RULE])
    assert (entry["displayName"], entry["description"]) == ("Web Server", "A web server")
    assert entry["resources"] == written["resources"]
    replicas = {
        "path": "replicas", "displayName": "Copies", "description": "How many",
        "x-descriptors": [f"{UI}podCount"],
    }  # fmt: skip
    assert entry["specDescriptors"][1:] == [replicas, {"path": "tls.secret"}]


def test_fields_for_another_version_are_ignored() -> None:
    """An entry of the base without a version is for all, one with it for that one."""
    written = [{"name": "webs.example.com", "version": "v2", "displayName": "Newer"}]
    base = {"spec": {"customresourcedefinitions": {"owned": written}}}
    assert owned_crds(rendered(), base, [], [])[0]["displayName"] == "Web"


def test_samples_are_those_of_the_own_kinds() -> None:
    """Other objects of config/samples are not examples of the operator."""
    other = {"apiVersion": "example.com/v2", "kind": "Web", "metadata": {"name": "newer"}}
    assert sample_resources(rendered(other)) == [SAMPLE]


def test_reading_is_not_making() -> None:
    """`resources` are the kinds that the operator may create; unknown resources are omitted."""
    rules = [
        {"apiGroups": [""], "resources": ["secrets", "pods/log"], "verbs": ["get", "list"]},
        {"apiGroups": ["", "batch"], "resources": ["configmaps", "jobs", "x"], "verbs": ["*"]},
    ]
    assert [item["kind"] for item in creatable_kinds(rules)] == ["ConfigMap", "Job"]


def test_fields_of_examples_get_descriptors() -> None:
    """The fields of the examples get a descriptor, as scorecard requires one for each."""
    open_ = {"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": True}}}
    assert descriptors(open_, "spec", [SAMPLE]) == [
        {"path": "extra", "displayName": "Extra"},
        {"path": "replicas", "displayName": "Replicas"},
    ]


@pytest.mark.parametrize(
    ("schema", "hints"),
    [
        ({"type": "integer"}, ["number"]),
        ({"type": "boolean"}, ["booleanSwitch"]),
        ({"type": "string", "format": "password"}, ["password"]),
        ({"type": "string", "enum": ["a", "b"]}, ["select:a", "select:b"]),
    ],
)
def test_field_types_become_console_hints(schema: dict[str, object], hints: list[str]) -> None:
    """The type of a field determines its editor."""
    whole = {"properties": {"spec": {"properties": {"x": schema}}}}
    (made,) = descriptors(whole, "spec", [])
    assert made["x-descriptors"] == [UI + hint for hint in hints]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("forceRedploy", "Force Redploy"), ("replicas", "Replicas"), ("URLPath", "URL Path")],
)
def test_field_names_become_words(name: str, expected: str) -> None:
    """Consoles display words instead of identifiers."""
    assert expected == display_name(name)
