"""JSON merge patches that replace fields of an object. Pure.

A merge patch merges maps and removes the keys that are null in it. Source: RFC 7396.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operator_runner.core.model import Json


def replacing(current: Mapping[str, Any], fields: Mapping[str, Any]) -> Json:
    """Return the patch that gives `current` these fields, without those that it has already.

    A map replaces the former map: its other keys are null in the patch. None removes a field. A
    merge patch cannot write null into a map: keys with null are left out of the maps in `fields`.
    """
    patch: Json = {}
    for name, value in fields.items():
        if value is None:
            if current.get(name) is not None:
                patch[name] = None
        elif not _is_same(old := current.get(name), new := _without_nulls(value)):
            patch[name] = _merging(old, new)
    return patch


def _merging(old: Any, new: Any) -> Any:
    """Return what a merge patch has to contain so that `new` takes the place of `old`."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or not _is_same(old[key], value):
            patch[key] = _merging(old.get(key), value)
    return patch


def _without_nulls(value: Any) -> Any:
    """Return the value without null in maps; within lists a merge patch keeps them."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(each) for key, each in value.items() if each is not None}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; for Python True is 1 as well."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def merged(current: Any, patch: Any) -> Any:
    """Return a value with a merge patch applied; neither of the two is changed."""
    if not isinstance(patch, Mapping):
        return patch
    result: Json = dict(current) if isinstance(current, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
