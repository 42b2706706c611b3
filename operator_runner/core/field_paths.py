"""Find the fields of an object that differ, as paths such as `spec.ports[0].port`. Pure.

Only paths are for display, never values: a spec may hold secrets that must not be logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

ABSENT: Final = object()
"""In the place of the value of a field that an object does not have."""
CUT = "..."
"""End of a path that is not shown to its end."""
_MAX_PATHS = 4
"""Paths in a summary; the others are counted."""
_MAX_CHARACTERS = 350
"""Maximum of a name, and of the path that another part is added to.

A resource may have one name of a megabyte above 30,000 fields: all of their paths would need 30 GB.
The longest key of an annotation has 317 characters.
"""


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each field that differs; see `changed_fields`."""
    return (changed for changed, _, _ in changed_fields(old, new, path))


def changed_fields(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each field that differs, in the order of the documents.

    An added or removed field gives its own path only, and ABSENT for a value; lists are compared
    by index, and those of different length give the first index beyond the common part, with the
    rest of both lists. Long paths are cut, see `is_cut`.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = _field(path, str(key))
            if (key in old) != (key in new):
                yield inner, old.get(key, ABSENT), new.get(key, ABSENT)
            else:
                yield from changed_fields(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from changed_fields(before, after, _part(path, f"[{index}]"))
        if len(old) != len(new):
            common = min(len(old), len(new))
            yield _part(path, f"[{common}]"), old[common:], new[common:]
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
            step = _field(path, name)
        elif mark == "k":
            step = _part(path, f"[{_keys(name)}]")
        else:
            step = _part(path, "[]")
        yield from managed_paths(value, step)


def summarize(paths: Sequence[str]) -> str:
    """Return the first few paths and the number of the others, for display."""
    distinct = list(dict.fromkeys(paths))
    more = len(distinct) - _MAX_PATHS
    text = ", ".join(distinct[:_MAX_PATHS])
    return f"{text} and {more} more" if more > 0 else text


def is_cut(path: str) -> bool:
    """Return whether a path lacks its end."""
    return path.endswith(CUT)


def _field(path: str, name: str) -> str:
    return _part(path, f".{name}" if path else name)


def _part(path: str, part: str) -> str:
    """Return the path of a part of the value at `path`."""
    if len(path) > _MAX_CHARACTERS:
        return path if is_cut(path) else f"{path}{CUT}"
    return path + (part if len(part) <= _MAX_CHARACTERS else f"{part[:_MAX_CHARACTERS]}{CUT}")


def _keys(text: str) -> str:
    """Turn `{"name":"web"}` into `name=web`."""
    return text.strip("{}").replace('"', "").replace(":", "=")
