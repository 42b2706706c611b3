"""Fields of an object by their path: read, set and removed without touching the object. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from operator_runner.core.model import FieldPath, Json


class _Absent:
    """A field that is not there, which differs from one that is null."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


def get(body: Json, path: FieldPath) -> Any:
    """Return the value of a field, ABSENT if it or a map above it is not there."""
    value: Any = body
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return ABSENT
        value = value[name]
    return value


def put(body: Json, path: FieldPath, value: Any) -> Json:
    """Return the object with a field set, or removed for ABSENT; maps above it are made.

    Raises ValueError where something else than a map stands above the field.
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
        raise ValueError(f"{name} is no map of fields but {json.dumps(inner)[:50]}")
    return {**body, name: put(inner, tuple(rest), value)}


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same JSON; 1 is neither true nor 1.0."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return canonical(one) == canonical(other)


def canonical(value: Any) -> str:
    """Return a value as JSON that is the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
