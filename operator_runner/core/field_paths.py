"""Find the fields of an object that differ, as paths such as `spec.ports[0].port`. Pure.

Only paths are for display, never values: a spec may hold secrets that must not be logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

ABSENT: Final = object()
"""In the place of the value of a field that an object does not have."""
_MAX_PATHS = 4
"""Paths in a summary; the others are counted."""


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each field that differs; see `changed_fields`."""
    return (changed for changed, _, _ in changed_fields(old, new, path))


def changed_fields(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each field that differs, in the order of the documents.

    An added or removed field gives its own path only, and ABSENT for a value; lists are compared
    by index, and those of different length give the first index beyond the common part, with the
    rest of both lists.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{path}.{key}" if path else str(key)
            if (key in old) != (key in new):
                yield inner, old.get(key, ABSENT), new.get(key, ABSENT)
            else:
                yield from changed_fields(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from changed_fields(before, after, f"{path}[{index}]")
        if len(old) != len(new):
            common = min(len(old), len(new))
            yield f"{path}[{common}]", old[common:], new[common:]
    elif old != new or type(old) is not type(new):
        yield path, old, new


def managed_paths(fields: Any, path: str = "") -> Iterator[str]:
    """Yield the leaf paths of a `fieldsV1` of `managedFields`: the fields that one manager set.

    Keys of lists of objects are included (`containers[name=web]`), values of plain lists are not.
    Source: Kubernetes' structured-merge-diff, which marks fields with `f:`, keys with `k:`,
    values with `v:` and the object itself with `.`.
    """
    if not fields and path:
        yield path
    for key, value in fields.items():
        if key == ".":
            # The container alone, whose fields have other managers.
            continue
        mark, _, name = key.partition(":")
        if mark == "f":
            step = f"{path}.{name}" if path else name
        elif mark == "k":
            step = f"{path}[{_keys(name)}]"
        else:
            step = f"{path}[]"
        yield from managed_paths(value, step)


def summarize(paths: Sequence[str]) -> str:
    """Return the first few paths and the number of the others, for display."""
    distinct = list(dict.fromkeys(paths))
    more = len(distinct) - _MAX_PATHS
    text = ", ".join(distinct[:_MAX_PATHS])
    return f"{text} and {more} more" if more > 0 else text


def _keys(text: str) -> str:
    """Turn `{"name":"web"}` into `name=web`."""
    return text.strip("{}").replace('"', "").replace(":", "=")
