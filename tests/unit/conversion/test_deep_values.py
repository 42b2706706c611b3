"""Values that are nested too deep to be decoded are converted without being decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operator_runner.conversion.converter import ConversionError, Storage
from operator_runner.conversion.preserved_fields import DeepValues
from tests.unit.conversion.conftest import HUB, MakeConverter

LEVELS = 2_000
DEEP = '{"[\\"a":[' * LEVELS + "1" + "]}" * LEVELS


def review(*specs: str) -> bytes:
    """Return a review of objects of v1 with these specs."""
    meta = f'"apiVersion":"{HUB.group}/v1","kind":"Web","metadata":{{"name":"x"}}'
    objects = ",".join(f'{{{meta},"spec":{spec}}}' for spec in specs)
    return f'{{"kind":"ConversionReview","request":{{"objects":[{objects}]}}}}'.encode()


def shallow_object(spec: str) -> tuple[DeepValues, dict[str, Any]]:
    """Return an object with this spec as it is decoded."""
    values = DeepValues(review(spec))
    return values, json.loads(values.shallow)["request"]["objects"][0]


def test_deep_values_are_the_same_in_the_response() -> None:
    """Down to the last byte, for each of several objects, beside text that looks like brackets."""
    body = review(f'{{"a":{DEEP}}}', '{"b":"]}{[\\\\"}', f'{{"c":[{DEEP},[{DEEP}]]}}')
    values = DeepValues(body)
    decoded = json.loads(values.shallow)
    assert values.restore(json.dumps(decoded, separators=(",", ":")).encode()) == body


def test_deep_values_are_copied_by_expressions(make: MakeConverter) -> None:
    """A field that moves takes its deep value along."""
    values, body = shallow_object(f'{{"size":{DEEP}}}')
    converter = make(("v1", {"spec.replicas": "spec.size"}, {"spec.size": "spec.replicas"}))
    made = converter.convert(body, "v2")
    spec = values.restore(json.dumps(made["spec"], separators=(",", ":")).encode())
    assert spec.decode() == f'{{"replicas":{DEEP}}}'


def test_a_deep_value_is_not_made_text(make: MakeConverter) -> None:
    """A write fails with the reason; a read leaves the field out."""
    _, body = shallow_object(f'{{"size":{DEEP}}}')
    converter = make(("v1", {"spec.text": "to_string(spec)"}, {}))
    with pytest.raises(ConversionError, match=r"spec\.text: values nested deeper than 100 levels"):
        converter.convert(body, "v2")
    converter.storage = Storage("v1")
    assert "text" not in converter.convert(body, "v2")["spec"]


@pytest.mark.parametrize("levels", [95, 150, LEVELS])
def test_a_preserved_value_of_any_depth_is_not_lost_without_an_error(
    make: MakeConverter, levels: int
) -> None:
    """It is restored from the annotation, or writing the object in that version is refused."""
    converter = make(("v1", {"spec.extra": None}, {}))
    _, body = shallow_object(f'{{"extra":{"[" * levels}{"]" * levels}}}')
    body["apiVersion"] = HUB.api_version
    converter.storage = Storage("v2")
    read = converter.convert(body, "v1")
    assert "extra" not in read["spec"]
    if levels < 100:
        assert converter.convert(read, "v2") == body
    else:
        with pytest.raises(ConversionError, match="write the object as v2"):
            converter.convert(read, "v2")


def test_a_forged_mark_is_text() -> None:
    """A resource can neither contain a mark nor name the value of another one."""
    forged = '"\\\\ud800' + "0" * 32 + '"'
    body = review(f'{{"a":{forged},"b":{DEEP}}}')
    values = DeepValues(body)
    decoded = json.loads(values.shallow)
    assert values.restore(json.dumps(decoded, separators=(",", ":")).encode()) == body


def test_only_deep_values_are_marked() -> None:
    """A million short ones at the same level would occupy the webhook for seconds."""
    levels = 99
    many = f"{'[' * levels}{','.join(['[]'] * 1000)}{']' * levels}"
    values = DeepValues(review(f'{{"a":{many},"b":{DEEP}}}'))
    assert values.shallow.count(b"ud800") == 1
