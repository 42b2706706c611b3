"""The short form of `make fuzz`: the same targets on inputs that hypothesis makes up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.servers import SEEDS, TARGETS, answer

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = st.sampled_from(
    ["apiVersion", "kind", "metadata", "annotations", "ownerReferences", "spec", "rules", "verbs"]
)
KEYS = NAMES | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_any_bytes_get_an_answer(name: str, data: st.DataObject) -> None:
    """Any bytes, alone or within an input that is understood, have an answer with a text."""
    noise = data.draw(st.binary(max_size=60))
    seed = data.draw(st.sampled_from([b"", *SEEDS[name]]))
    start = data.draw(st.integers(0, len(seed)))
    end = data.draw(st.integers(start, len(seed)))
    TARGETS[name](seed[:start] + noise + seed[end:])


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "protobuf_body"])
@given(value=VALUES)
def test_any_json_value_gets_an_answer(name: str, value: Any) -> None:
    """Any JSON is accepted."""
    TARGETS[name](json.dumps(value).encode())


@pytest.mark.parametrize(
    "place", ["apiVersion", "kind", "request", "uid", "desiredAPIVersion", "objects"]
)
@given(value=VALUES)
def test_any_conversion_review_gets_an_answer(place: str, value: Any) -> None:
    """A ConversionReview does that has anything at one place."""
    review = json.loads(SEEDS["review"][0])
    inside = review if place in review else review["request"]
    inside[place] = value
    answer(review)
