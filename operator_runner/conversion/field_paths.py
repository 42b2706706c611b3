"""Get, set and remove fields of an object by path, without changing the object. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from operator_runner.core.canonical_json import canonical_json
from operator_runner.core.model import FieldPath, Json


class _Absent:
    """A missing field, as distinct from one that is null."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


def get(body: Json, path: FieldPath) -> Any:
    """Return the value of a field, ABSENT if it or a parent is missing."""
    value: Any = body
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return ABSENT
        value = value[name]
    return value


def put(body: Json, path: FieldPath, value: Any) -> Json:
    """Return the object with a field set, or removed for ABSENT; parents are created.

    Raises ValueError if a parent of the field is not an object.
    """
    name, *rest = path
    if not rest:
        others = {key: old for key, old in body.items() if key != name}
        return others if value is ABSENT else {**body, name: value}
    inner = body.get(name, ABSENT)
    if inner is ABSENT or inner is None:
        if value is ABSENT:
            return body
        inner = {}
    if not isinstance(inner, dict):
        if value is ABSENT:
            return body
        raise ValueError(f"{name} is not an object: {json.dumps(inner)[:50]}")
    return {**body, name: put(inner, tuple(rest), value)}


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; 1 is neither true nor 1.0."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return canonical_json(one) == canonical_json(other)
