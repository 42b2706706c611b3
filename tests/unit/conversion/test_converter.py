"""Conversion of single objects: common cases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operator_runner.conversion.converter import ConversionError, Converter, Storage
from operator_runner.conversion.preserved_fields import PREFIX
from tests.unit.conversion.conftest import MakeConverter

Json = dict[str, Any]
HTTP = {"name": "http", "containerPort": 8080, "protocol": "TCP"}
METRICS = {"name": "metrics", "containerPort": 9090, "protocol": "TCP"}


def nginx_of(version: str, **spec: Any) -> Json:
    return {
        "apiVersion": f"operator.example.com/{version}",
        "kind": "NginxOperator",
        "metadata": {"name": "web", "namespace": "default", "resourceVersion": "7"},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready"}]},
    }


def web(version: str, **spec: Any) -> Json:
    return {
        "apiVersion": f"shop.example.com/{version}",
        "kind": "Web",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }


def test_a_port_becomes_a_list_and_back(nginx: Converter) -> None:
    """All but the port, the version and nothing else changes; no annotation is needed."""
    lower = nginx_of("v1alpha1", port=8080, replicas=2)
    higher = nginx_of("v1alpha2", ports=[{"containerPort": 8080, "protocol": "TCP"}], replicas=2)
    assert nginx.convert(lower, "v1alpha2") == higher
    assert nginx.convert(higher, "v1alpha1") == lower


def test_an_object_of_the_requested_version_is_unchanged(nginx: Converter) -> None:
    """Nothing is computed, not even a broken annotation looked at."""
    body = nginx_of("v1alpha1", port=1)
    body["metadata"]["annotations"] = {f"{PREFIX}v1alpha2": "{"}
    assert nginx.convert(body, "v1alpha1") == body


@pytest.mark.parametrize(
    ("edit", "ports"),
    [
        ({"port": 8080}, [HTTP, METRICS]),
        ({"port": 8080, "replicas": 5}, [HTTP, METRICS]),
        ({"port": 8081}, [HTTP | {"containerPort": 8081}, METRICS]),
        ({"port": 9090}, [HTTP | {"containerPort": 9090}]),
        ({}, None),
    ],
)
def test_an_edit_in_the_lower_version_keeps_other_fields(
    nginx: Converter, edit: Json, ports: Any
) -> None:
    """Edited fields have the new values, and fields of the other version are kept."""
    lower = nginx.convert(nginx_of("v1alpha2", ports=[HTTP, METRICS]), "v1alpha1")
    assert lower["spec"] == {"port": 8080}
    lower["spec"] = edit
    higher = nginx.convert(lower, "v1alpha2")
    assert higher["spec"].get("ports") == ports
    assert nginx.convert(higher, "v1alpha1")["spec"] == edit
    assert "annotations" not in higher["metadata"]


def test_an_object_that_was_replaced_whole(nginx: Converter) -> None:
    """Without the annotation the object is complete."""
    lower = nginx.convert(nginx_of("v1alpha2", ports=[HTTP, METRICS]), "v1alpha1")
    del lower["metadata"]["annotations"]
    higher = nginx.convert(lower, "v1alpha2")
    assert higher["spec"] == {"ports": [{"containerPort": 8080, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        "7",
        '{"set": []}',
        '{"unset": {}}',
        '{"unset": [[]]}',
        '{"set": {"spec.replicas": 9}}',
        '{"set": {"metadata.uid": "9"}}',
        '{"set": {"spec": 7}}',
        '{"set": {"spec.ports": {"a": 1}}, "seen": "x"}',
        '{"set": {"spec.ports": [[]]}}',
    ],
)
def test_an_invalid_annotation_is_ignored(nginx: Converter, content: str) -> None:
    """It is ignored and removed, and does not change other fields."""
    lower = nginx_of("v1alpha1", port=8080, replicas=2)
    lower["metadata"]["annotations"] = {f"{PREFIX}v1alpha2": content, "mine": "stays"}
    higher = nginx.convert(lower, "v1alpha2")
    ports = [{"containerPort": 8080, "protocol": "TCP"}]
    assert higher["spec"] == {"ports": ports, "replicas": 2}
    assert higher["metadata"] == lower["metadata"] | {"annotations": {"mine": "stays"}}


def test_the_annotation_contains_the_preserved_fields(nginx: Converter) -> None:
    """It is readable text."""
    lower = nginx.convert(nginx_of("v1alpha2", ports=[HTTP, METRICS]), "v1alpha1")
    kept = json.loads(lower["metadata"]["annotations"]["conversion.operator-runner.dev/v1alpha2"])
    assert kept["set"] == {"spec.ports": [HTTP, METRICS]}


def test_a_field_that_the_other_version_does_not_have(make: MakeConverter) -> None:
    """It is omitted there, and restored even if another field is edited meanwhile."""
    converter = make(("v1", {"spec.tls": None, "spec.size": "spec.n"}, {"spec.n": "spec.size"}))
    lower = converter.convert(web("v2", tls={"secret": "a"}, size=1), "v1")
    assert lower["spec"] == {"n": 1}
    lower["spec"]["n"] = 2
    assert converter.convert(lower, "v2")["spec"] == {"tls": {"secret": "a"}, "size": 2}


def test_a_field_that_would_appear_is_kept_away(make: MakeConverter) -> None:
    """A default of an expression does not creep into objects that were without the field."""
    converter = make(("v1", {"spec.size": "spec.n || `1`"}, {"spec.n": "spec.size"}))
    lower = converter.convert(web("v2", note="x"), "v1")
    assert lower["spec"] == {"note": "x"}
    assert converter.convert(lower, "v2") == web("v2", note="x")
    assert converter.convert(web("v1", note="x"), "v2")["spec"] == {"note": "x", "size": 1}


def test_status_labels_and_annotations_are_converted_too(make: MakeConverter) -> None:
    """A path may lead into any of them."""
    converter = make(
        (
            "v1",
            {"status.phase": "status.state", 'metadata.labels."a/b"': "spec.tier"},
            {"status.state": "status.phase", "spec.tier": 'metadata.labels."a/b"'},
        )
    )
    higher = web("v2") | {"status": {"phase": "Up"}}
    higher["metadata"]["labels"] = {"a/b": "front", "c": "d"}
    lower = converter.convert(higher, "v1")
    assert (lower["status"], lower["spec"]) == ({"state": "Up"}, {"tier": "front"})
    assert lower["metadata"]["labels"] == {"c": "d"}
    assert converter.convert(lower, "v2") == higher


def test_fields_survive_the_hub_and_a_third_version(make: MakeConverter) -> None:
    """Fields without a counterpart in the hub and the third version are restored in the first."""
    converter = make(
        ("v1", {"spec.size": "spec.n"}, {"spec.n": "spec.size", "spec.old": None}),
        ("v3", {"spec.size": "spec.count"}, {"spec.count": "spec.size", "spec.new": None}),
    )
    first = web("v1", n=1, old={"a": [1]}, note="x")
    third = converter.convert(first, "v3")
    assert third["spec"] == {"count": 1, "note": "x"}
    third["spec"] |= {"count": 2, "new": True}
    assert converter.convert(third, "v1")["spec"] == {"n": 2, "old": {"a": [1]}, "note": "x"}
    back = converter.convert(converter.convert(third, "v1"), "v3")
    assert back["spec"] == third["spec"]


@pytest.mark.parametrize(
    ("to_hub", "spec", "complaint"),
    [
        ("abs(spec.n)", {"n": "x"}, "spec.size: In function abs\\(\\)"),
        ("spec.n", {"n": 1, "size": 2}, None),
    ],
)
def test_an_expression_that_fails_is_an_error(
    make: MakeConverter, to_hub: str, spec: Json, complaint: str | None
) -> None:
    """The error names object, versions and field."""
    converter = make(("v1", {"spec.size": to_hub}, {"spec.n": "spec.size"}))
    if complaint is None:
        assert converter.convert(web("v1", **spec), "v2")["spec"] == {"size": 1}
        return
    with pytest.raises(
        ConversionError, match=f"^Web default/web: cannot convert v1 to v2: {complaint}"
    ):
        converter.convert(web("v1", **spec), "v2")


def test_a_field_below_a_value_that_is_not_a_map(make: MakeConverter) -> None:
    """The error has the value."""
    converter = make(("v1", {"spec.tls.cert": "spec.cert"}, {"spec.cert": "spec.tls.cert"}))
    with pytest.raises(ConversionError, match=r"spec\.tls\.cert: tls is not an object: 7"):
        converter.convert(web("v1", cert="x", tls=7), "v2")


def test_an_unknown_version_is_named_in_the_error(nginx: Converter) -> None:
    """The error names the version, and those that there are."""
    with pytest.raises(
        ConversionError,
        match=r"NginxOperator default/web: cannot convert v1alpha1 to v1: watches.yaml has "
        r"no conversion of v1, only of v1alpha2, v1alpha1",
    ):
        nginx.convert(nginx_of("v1alpha1"), "v1")


BIG = (
    "v1",
    {"spec.big": None, "spec.size": "spec.number"},
    {"spec.number": "spec.size && abs(spec.size)"},
)


@pytest.mark.parametrize("storage", [None, Storage("v1"), Storage("v1", frozenset({"v2"}))])
def test_more_than_annotations_can_hold(make: MakeConverter, storage: Storage | None) -> None:
    """A conversion that may be a write loses nothing; the API server's message has no details."""
    converter = make(BIG)
    converter.storage = storage
    with pytest.raises(
        ConversionError, match=r"spec\.big: preserving it needs an annotation, .* bytes"
    ):
        converter.convert(web("v2", big="x" * 300_000), "v1")


def test_a_read_gives_what_can_be_converted(make: MakeConverter) -> None:
    """Fields that cannot be preserved or computed are missing, and cannot be lost by a write."""
    converter = make(BIG)
    converter.storage = Storage("v2")
    lower = converter.convert(web("v2", big="x" * 300_000, size=1, note="x"), "v1")
    assert lower["spec"] == {"number": 1, "note": "x"}
    assert json.loads(lower["metadata"]["annotations"][f"{PREFIX}v2"]) == {"lost": ["spec.big"]}
    with pytest.raises(
        ConversionError, match=r"v1 does not have spec\.big of v2, .*; write the object as v2"
    ):
        converter.convert(lower, "v2")
    odd = converter.convert(web("v2", size="much", note="x"), "v1")
    assert odd["spec"] == {"note": "x"}
    with pytest.raises(ConversionError, match=r"v2 to v1: spec\.number: In function abs\(\)"):
        converter.convert(odd, "v2")


def test_stored_objects_of_a_former_version_are_read(make: MakeConverter) -> None:
    """Users can write the annotation of a read; there it must not make lists unreadable."""
    forged = web("v1", number=1)
    forged["metadata"]["annotations"] = {f"{PREFIX}v2": '{"lost": ["spec.big"]}'}
    converter = make(BIG)
    for storage in (None, Storage("v2", frozenset({"v1"}))):
        converter.storage = storage
        assert converter.convert(forged, "v2")["spec"] == {"size": 1}


def test_storage_is_read_from_a_crd() -> None:
    """The version of writes, and those of objects that are still stored."""
    versions = [{"name": "v1", "storage": False}, {"name": "v2", "storage": True}]
    crd = {"spec": {"versions": versions}, "status": {"storedVersions": ["v1", "v2"]}}
    assert Storage.of(crd) == Storage("v2", frozenset({"v1"}))
    assert Storage.of({"spec": {"versions": versions}}) == Storage("v2")
