"""Copies of tagged values are those of `copy.deepcopy`; cached facts are read with their tags."""

from __future__ import annotations

import copy
import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from ansible._internal._datatag._tags import Origin, TrustedAsTemplate
from ansible._internal._json._profiles import _cache_persistence
from ansible.module_utils._internal import _datatag
from ansible.module_utils._internal._datatag import AnsibleTaggedObject
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.ansible.forkserver import results


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    """Install the functions for the tests of this module."""
    results.install_deep_copies()
    yield
    del AnsibleTaggedObject.__deepcopy__
    _datatag.t = typing


def _tagged(value: Any) -> Any:
    for tag in (Origin(path="/role/tasks/main.yml", line_num=1), TrustedAsTemplate()):
        value = tag.try_tag(value)
    return value


_scalars = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
_values = st.recursive(
    _scalars | _scalars.map(_tagged),
    lambda each: st.one_of(
        st.lists(each, max_size=3),
        st.lists(each, max_size=3).map(_tagged),
        st.tuples(each, each).map(_tagged),
        st.sets(_scalars, max_size=3).map(_tagged),
        st.dictionaries(st.text() | st.text().map(_tagged), each, max_size=3),
        st.dictionaries(st.text(), each, max_size=3).map(_tagged),
    ),
    max_leaves=8,
)


def _shape(value: Any) -> Any:
    """Return a value with types and tags at all depths."""
    tags = dict(getattr(value, "_ansible_tags_mapping", {}))
    if isinstance(value, dict):
        return type(value), tags, [(_shape(key), _shape(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value), tags, [_shape(each) for each in value]
    return type(value), tags, value


def _containers(value: Any) -> set[int]:
    if not isinstance(value, dict | list):
        return set()
    items = value.values() if isinstance(value, dict) else value
    return {id(value)}.union(*map(_containers, items))


@given(_values)
def test_a_copy_has_the_same_types_tags_and_values(value: Any) -> None:
    """Containers are new, so that a change of the copy leaves the original alone."""
    copied = copy.deepcopy(value)
    assert _shape(copied) == _shape(value)
    assert not _containers(copied) & _containers(value)


def test_references_within_a_value_are_kept() -> None:
    """A container that occurs twice, or in itself, does so in the copy."""
    shared = _tagged([1])
    value = _tagged({"a": shared, "b": shared})
    value["self"] = value
    copied = copy.deepcopy(value)
    assert copied["a"] is copied["b"]
    assert copied["a"] is not shared
    assert copied["self"] is copied


@given(st.dictionaries(st.text(), _scalars.map(_tagged) | st.lists(_scalars.map(_tagged))))
def test_cached_facts_are_read_with_their_tags(facts: dict[str, Any]) -> None:
    """The types of the fields of a tag are evaluated once for its class, not for each tag."""
    text = json.dumps(facts, cls=_cache_persistence.Encoder)
    assert _shape(json.loads(text, cls=_cache_persistence.Decoder)) == _shape(facts)
    assert _datatag.t.get_type_hints(Origin) is _datatag.t.get_type_hints(Origin)
