"""Patches that replace fields: empty without a difference, null for a removed key."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.object_diff import replacing_patch
from tests.fakes.cluster import merged

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text(max_size=2)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("current", "fields", "patch"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {}, id="equal"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"y": None}}, id="key gone"),
        pytest.param(
            {"a": {"x": {"y": 1}}}, {"a": {"x": {}}}, {"a": {"x": {"y": None}}}, id="deep"
        ),
        pytest.param({"a": {"x": 1}}, {"a": [1]}, {"a": [1]}, id="map to list"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, id="list"),
        pytest.param({"a": 1}, {"a": None}, {"a": None}, id="removed"),
        pytest.param({}, {"a": None}, {}, id="absent"),
        pytest.param({"a": {"x": 1}}, {"a": {"x": 1, "y": None}}, {}, id="null in a map"),
        pytest.param({"a": 1}, {"a": True}, {"a": True}, id="true is not 1"),
        pytest.param({"a": [0]}, {"a": [False]}, {"a": [False]}, id="false is not 0"),
        pytest.param({"a": 1}, {"a": 1.0}, {}, id="1.0 is 1"),
    ],
)
def test_a_patch_contains_only_differences(current: Any, fields: Any, patch: Any) -> None:
    """Only what differs, and null for each key that is to go."""
    assert replacing_patch(current, fields) == patch


@given(current=MAPS, fields=MAPS)
def test_the_patch_replaces_the_fields(current: Any, fields: Any) -> None:
    """Applied by RFC 7396 the fields are as given, the others as before; then nothing differs."""
    patched = merged(copy.deepcopy(current), replacing_patch(current, fields))
    assert replacing_patch(patched, fields) == {}
    assert {key: value for key, value in patched.items() if key not in fields} == {
        key: value for key, value in current.items() if key not in fields
    }
