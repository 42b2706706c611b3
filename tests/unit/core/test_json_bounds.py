"""Bounds on objects of the API server: depth and size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.json_bounds import (
    MAX_DEPTH,
    MAX_SIZE,
    MAX_VALUES,
    Pruner,
    RejectedObject,
    decode,
    depth,
    failure_reason,
    height,
    prune,
    shorten,
    values_at,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def nested(levels: int, inner: str = "1") -> bytes:
    """Return this many maps within each other."""
    return ('{"a":' * levels + inner + "}" * levels).encode()


@pytest.mark.parametrize("levels", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_objects_within_the_bounds_are_unchanged(levels: int) -> None:
    """Up to a hundred levels an object is decoded like any other JSON."""
    value = decode(nested(levels))
    assert value == json.loads(nested(levels))
    assert failure_reason(value) == ""


STATUS = {"conditions": [{"type": "Failure", "status": "True"}]}


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 400, 1_000, 10_000, 30_000])
def test_deeply_nested_objects_are_outlines_and_named(levels: int) -> None:
    """No depth raises; metadata and status remain, the fault has path and hint."""
    deep = nested(levels - 1)
    raw = b'{"metadata":{"name":"x","managedFields":[%b]},"spec":%b,"status":%b}'
    value = decode(raw % (deep, deep, json.dumps(STATUS).encode()))
    assert value == {"metadata": {"name": "x", "managedFields": []}, "spec": {}, "status": STATUS}
    assert "nested more than 100 levels deep at spec.a.a: make it flatter" in failure_reason(value)


MANY = MAX_VALUES + 1


@pytest.mark.parametrize(
    "many",
    [
        b"[" + b",".join([b"[]"] * MANY) + b"]",
        b"[" + b",".join([b'[{"a\\"]":["}"]},1]'] * MANY) + b"]",
        b"{" + b",".join(b'"%d": 1' % n for n in range(MANY)) + b"}",
        b"[" * MANY + b"]" * MANY,
        b"[" + b",".join([b"[" * 200 + b"]" * 200] * (MANY // 200 + 1)) + b"]",
        json.dumps([["]", {"": "[" * 9}]] * MANY, indent=1).encode(),
    ],
    ids=["lists", "texts", "fields", "deep", "deep-lists", "spaces"],
)
def test_objects_of_too_many_values_are_outlines_and_named(many: bytes) -> None:
    """Wherever the values are, and whatever the order of the fields."""
    for order in (b'{"a":%b, "metadata":%b,"status":%b}', b'{"metadata":%b,"status":%b,"z":%b}'):
        small = [b'{"name":"x"}', json.dumps({**STATUS, "x": 1}).encode()]
        parts = [many, *small] if order.startswith(b'{"a"') else [*small, many]
        value = decode(order % tuple(parts))
        assert (value["metadata"], value["status"]) == ({"name": "x"}, {**STATUS, "x": 1})
        assert value.get("a", value.get("z")) in ([], {})
        assert "values, most of them in " in failure_reason(value)
    metadata = b'{"metadata":{"uid":"u","managedFields":%b,"labels":{"a":"b"}},"spec":{"b":1}}'
    event = decode(b'{"type":"ADDED","object":' + metadata % many + b"}", outer_levels=1)
    kept = event["object"].pop("metadata")
    assert {"uid": kept["uid"], "labels": kept["labels"]} == {"uid": "u", "labels": {"a": "b"}}
    assert not kept["managedFields"]
    assert event == {"type": "ADDED", "object": {"spec": {}}}


def test_values_in_texts_are_not_counted() -> None:
    """A ConfigMap with a megabyte of JSON as text is an object of few values."""
    raw = json.dumps({"data": {"a": json.dumps([[]] * MANY), "b": '",["' * MANY}}).encode()
    assert failure_reason(decode(raw)) == ""
    assert decode(raw) == json.loads(raw)


def test_in_a_list_one_deep_object_costs_the_others_nothing() -> None:
    """All items are kept, and those within the bounds are complete."""
    many = b"[" + b",".join([b"1"] * (MAX_VALUES // 2)) + b"]"
    items = [nested(500), nested(MAX_DEPTH), nested(3), many, many, b'[[],"]"]']
    listed = decode(b'{"kind":"L", "items": [' + b",".join(items) + b"]}", outer_levels=2)
    assert listed["kind"] == "L"
    assert listed["items"] == [{"a": {}}, *map(json.loads, items[1:])]


@given(JSON, st.integers(1, 5), st.integers(1, 7))
def test_pruning_does_not_depend_on_chunks(value: Any, levels: int, size: int) -> None:
    """Texts and escapes may be split anywhere."""
    for raw in (
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    ):
        pruner = Pruner(levels)
        parts = [pruner.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
        assert b"".join([*parts, pruner.rest]) == prune(raw, levels)
        assert pruner.has_pruned == (prune(raw, levels) != raw)


def test_brackets_in_texts_are_not_levels() -> None:
    """Neither in keys nor behind escaped quotes and backslashes."""
    text = '[{"' * 300 + "\\" * 7 + '"]'
    raw = json.dumps({text: [text, "\\"], "a": ["{" * 500]}).encode()
    assert depth(raw) == 2
    assert decode(raw) == json.loads(raw)


def test_a_text_without_an_end_has_no_values() -> None:
    """Invalid JSON is read once: quotes in the text are not beginnings of other texts."""
    assert list(values_at(b'[{},"{} \\"[] \\', 2)) == [(1, 3)]
    assert list(values_at(b'["' + b'\\"' * 500_000, 2)) == []


def test_an_object_that_is_too_large_is_named() -> None:
    """Half of the limit is fine, and beyond it the largest part is named."""
    assert failure_reason(decode(json.dumps({"spec": "x" * (MAX_SIZE // 2)}).encode())) == ""
    value = decode(json.dumps({"spec": "x" * MAX_SIZE}).encode())
    assert "bytes large, most of it in spec; at most 3145728" in failure_reason(value)


def test_numbers_of_any_length_are_decoded() -> None:
    """Python alone refuses integers of more than 4,300 digits."""
    assert decode(b'{"a": ' + b"9" * 5_000 + b"}") == {"a": float("inf")}
    assert decode(b'{"a": ' + b"9" * 400 + b"}") == {"a": 10**400 - 1}


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a"', nested(500)[:-200], b"]" * 300, b'"' * 301, b'{"a":' * 101 + b"," * 101],
)
def test_invalid_json_is_a_value_error(raw: bytes) -> None:
    """Cut off or not, deep or not."""
    with pytest.raises(ValueError, match=r"."):
        decode(raw)


@given(JSON, st.integers(1, 6))
def test_cutting_leaves_valid_json_that_is_shallow(value: Any, levels: int) -> None:
    """For any JSON, the pruned form has the values above the level."""
    for raw in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        cut = json.loads(prune(raw.encode(errors="surrogatepass"), levels))
        assert cut == _cut(value, levels)
        assert height(cut) == min(height(value), levels)


@given(JSON)
def test_depth_is_that_of_the_value(value: Any) -> None:
    """Counted on the bytes, it is never less than that of the value, and exact where it matters."""
    padding: list[list[int]] = [[] for _ in range(MAX_DEPTH)]
    raw = json.dumps([padding, value]).encode()
    assert depth(raw) == height([padding, value])
    assert shorten(raw, 0) == raw


def _cut(value: Any, levels: int) -> Any:
    if isinstance(value, dict):
        return {} if levels == 1 else {k: _cut(v, levels - 1) for k, v in value.items()}
    if isinstance(value, list):
        return [] if levels == 1 else [_cut(item, levels - 1) for item in value]
    return value


def test_many_members_are_not_looked_at_to_describe_an_object() -> None:
    """The outline has the first of them, and the fault names a path all the same."""
    deep = b"[" * 110 + b"]" * 110
    fields = b",".join(b'"k%d":[[0]]' % number for number in range(20_000))
    head = b'{"metadata":{"name":"a"},"spec":{"z":' + deep + b"," + fields
    rejected = decode(head + b'},"status":{' + fields + b"}}")
    assert isinstance(rejected, RejectedObject)
    assert rejected["metadata"] == {"name": "a"}
    assert len(rejected["status"]) == 1000
    assert "levels deep at spec.z" in rejected.fault or "values, most of them" in rejected.fault
