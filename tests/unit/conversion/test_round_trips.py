"""Conversions are lossless for any objects and expressions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operator_runner.conversion.converter import ConversionError, Converter
from operator_runner.conversion.preserved_fields import PREFIX, ConvertedFields, read
from tests.unit.conversion.conftest import MakeConverter

Json = dict[str, Any]
NUMBERS = st.integers(1, 65535)
NAMES = st.sampled_from(["http", "admin", "metrics", "nginx"])
PORT = st.fixed_dictionaries(
    {"containerPort": NUMBERS, "protocol": st.sampled_from(["TCP", "UDP", "SCTP"])},
    optional={"name": NAMES, "hostPort": NUMBERS, "hostIP": st.just("10.0.0.1")},
)
COMMON = {
    "replicas": st.integers(0, 9),
    "forceRedploy": st.text(max_size=5),
}
SPEC_1 = st.fixed_dictionaries({}, optional={"port": st.integers(-(2**31), 2**31 - 1), **COMMON})
SPEC_2 = st.fixed_dictionaries({}, optional={"ports": st.lists(PORT, max_size=4), **COMMON})
STATUS = st.just({"conditions": [{"type": "Ready", "status": "True"}]})
METADATA = st.fixed_dictionaries(
    {"name": st.just("web"), "namespace": st.just("default"), "uid": st.just("1")},
    optional={
        "labels": st.dictionaries(NAMES, NAMES),
        "annotations": st.dictionaries(NAMES, NAMES, min_size=1),
        "managedFields": st.just([{"manager": "kubectl"}]),
    },
)
# Any JSON of an object, for kinds of any shape.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
ANY_SPEC = st.dictionaries(st.sampled_from("abcxy"), JSON, max_size=5)
PATHS = st.sampled_from(["spec.x", "spec.y.a", "spec.y.b", "spec.a", "status", "spec.c"])
EXPRESSIONS = st.sampled_from(
    [None, "spec.x", "spec.y", "spec.a[0]", "spec.b || `7`", "[spec]", "status", "spec.y.a", "`1`"]
)
MAPS = st.dictionaries(PATHS, EXPRESSIONS, max_size=4)

# The machine may be busy with something else.
without_hurry = settings(deadline=None, max_examples=60)


def objects(version: str, spec: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just(f"operator.example.com/{version}"),
            "kind": st.just("NginxOperator"),
            "metadata": METADATA,
        },
        optional={"spec": spec, "status": STATUS},
    )


@without_hurry
@given(objects("v1alpha1", SPEC_1))
def test_a_lower_version_survives_storage_in_the_higher(nginx: Converter, body: Json) -> None:
    """A v1alpha1 is the same after it was stored as v1alpha2, down to the last byte."""
    assert nginx.convert(nginx.convert(body, "v1alpha2"), "v1alpha1") == body


@without_hurry
@given(objects("v1alpha2", SPEC_2))
def test_a_higher_version_survives_a_client_of_the_lower(nginx: Converter, body: Json) -> None:
    """A v1alpha2 with any number of ports is the same after a client of v1alpha1 wrote it back."""
    assert nginx.convert(nginx.convert(body, "v1alpha1"), "v1alpha2") == body


@without_hurry
@given(objects("v1alpha2", SPEC_2), st.integers(0, 9), st.text(max_size=5))
def test_edits_of_other_fields_keep_the_ports(
    nginx: Converter, body: Json, replicas: int, redeploy: str
) -> None:
    """An edit of a common field changes this field only."""
    lower = nginx.convert(body, "v1alpha1")
    edit = {"replicas": replicas, "forceRedploy": redeploy}
    lower["spec"] = {**lower.get("spec", {}), **edit}

    assert nginx.convert(lower, "v1alpha2")["spec"] == {**body.get("spec", {}), **edit}


@without_hurry
@given(objects("v1alpha2", SPEC_2), NUMBERS)
def test_an_edited_port_is_read_back_as_written(nginx: Converter, body: Json, port: int) -> None:
    """For any stored values, a port that is written in v1alpha1 is the one in effect."""
    lower = nginx.convert(body, "v1alpha1")
    lower["spec"] = {**lower.get("spec", {}), "port": port}

    higher = nginx.convert(lower, "v1alpha2")

    assert nginx.convert(higher, "v1alpha1")["spec"] == lower["spec"]
    ports = higher["spec"]["ports"]
    assert ports[0]["containerPort"] == port
    keys = [(each["containerPort"], each["protocol"]) for each in ports[1:]]
    assert (port, "TCP") not in keys or ports[0]["protocol"] != "TCP" or not _edited(body, port)


def _edited(body: Json, port: int) -> bool:
    ports = body.get("spec", {}).get("ports", [])
    return not ports or ports[0]["containerPort"] != port


@without_hurry
@given(
    objects("v1alpha1", ANY_SPEC) | objects("v1alpha2", ANY_SPEC),
    st.text(max_size=30) | JSON.map(str),
)
def test_rubbish_in_the_annotation_stops_nothing(
    nginx: Converter, body: Json, rubbish: str
) -> None:
    """Any object can be read in any version, with any content of the annotation."""
    for version in ("v1alpha1", "v1alpha2"):
        annotations = {PREFIX + version: rubbish, "mine": "stays"}
        edited = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
        for target in ("v1alpha1", "v1alpha2"):
            made = nginx.convert(edited, target)
            assert made["metadata"]["annotations"]["mine"] == "stays"


@settings(deadline=None, max_examples=200)
@given(objects("v2", ANY_SPEC), st.tuples(MAPS, MAPS), st.tuples(MAPS, MAPS))
def test_any_expressions_lose_nothing(
    make: MakeConverter, body: Json, v1: tuple[Json, Json], v3: tuple[Json, Json]
) -> None:
    """Between any versions with any expressions, inverse or not, the way back leads home."""
    converter = make(("v1", *v1), ("v3", *v3))
    body = {**body, "apiVersion": "shop.example.com/v2", "kind": "Web"}
    for through in (["v1"], ["v3"], ["v1", "v3"], ["v3", "v1", "v3"]):
        there = body
        try:
            for version in through:
                there = converter.convert(there, version)
        except ConversionError:
            continue  # for example a field below one that is not a map
        for version in [*reversed(through[:-1]), "v2"]:
            there = converter.convert(there, version)
        assert _bare(there) == _bare(body)


def _bare(body: Json) -> Json:
    metadata = dict(body["metadata"])
    annotations = metadata.pop("annotations", {})
    mine = {key: value for key, value in annotations.items() if not key.startswith(PREFIX)}
    return {**body, "metadata": {**metadata, "annotations": mine}}


@pytest.mark.parametrize("kept", ["[" * 100_000, "[" * 1_000 + "]" * 1_000])
def test_preserved_fields_are_read_within_bounds(kept: Any) -> None:
    """Users with write access to a resource can write the annotation."""
    body = {"metadata": {"name": "a", "annotations": {f"{PREFIX}v2": kept}}}
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        read(body, "v2", ConvertedFields.of(("spec", "y")))
