"""Fields that the conversion omits are reported."""

from __future__ import annotations

from typing import Any

import yaml

from operator_runner.config.watches import load
from operator_runner.conversion.registrar import unmapped_fields
from operator_runner.core.model import Conversion
from tests.support.operator import REPOSITORY

Json = dict[str, Any]


def schema(**fields: Json) -> Json:
    return {"type": "object", "properties": fields}


TEXT: Json = {"type": "string"}


def crd(v1: Json, v2: Json) -> Json:
    versions = [
        {"name": name, "schema": {"openAPIV3Schema": schema(metadata=TEXT, spec=spec)}}
        for name, spec in (("v1", v1), ("v2", v2))
    ]
    return {"spec": {"versions": versions}}


def test_the_nginx_operator_maps_all_fields() -> None:
    """Its CRD and its watches.yaml fit."""
    text = (REPOSITORY / "crds" / "operator.example.com_nginxoperators.yaml").read_text()
    loaded = load(REPOSITORY / "watches.yaml", {}, roles_path=str(REPOSITORY / "roles"))
    (watch,) = loaded.watches
    body = yaml.safe_load(text)
    assert list(unmapped_fields(body, watch.gvk.version, watch.conversions)) == []
    without = Conversion("v1alpha1", {}, {})
    lines = list(unmapped_fields(body, "v1alpha2", [without]))
    assert [line.partition(":")[0] for line in lines] == [
        "spec.ports of v1alpha2 is lost in v1alpha1",
        "spec.port of v1alpha1 is lost in v1alpha2",
    ]


def test_the_topmost_field_is_named_with_a_hint() -> None:
    """Listed fields, their children, and fields of open maps are not reported."""
    body = crd(
        schema(a=schema(), open={"type": "object", "additionalProperties": TEXT}, old=TEXT),
        schema(a=schema(b=schema(c=TEXT)), open=schema(x=TEXT), tls=schema(cert=TEXT)),
    )
    conversion = Conversion("v1", {("spec", "tls", "cert"): None}, {("spec", "old"): "spec.a"})
    (line,) = unmapped_fields(body, "v2", [conversion])
    assert line == (
        "spec.a.b of v2 is lost in v1: name it in toHub of the conversion of v1, as "
        "`spec.a.b: null` if it has no counterpart"
    )
    assert list(unmapped_fields(body, "v2", [Conversion("v9", {}, {})])) == []
