"""Compare JSON objects: paths of the fields that differ, differences, merge patches. Pure.

Only paths such as `spec.ports[0].port` are logged, never values: a spec may hold secrets. In the
comparison of an object before and after a run, for display, what the API server maintains (status,
resourceVersion, managedFields) is left out, and values of Secrets are masked as `kubectl diff`
does. A merge patch merges maps and removes the keys that are null in it. Source: RFC 7396.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from operator_runner.core.model import GVK, LAST_APPLIED, PART_OF, Json, ObjectRef


def canonical_json(value: Any) -> str:
    """Return JSON on one line, without spaces, with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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


_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
_REPORTS = frozenset({"Event"})
"""Kinds that report on an object and are not part of what a resource asks for."""
_MASK, _MASK_BEFORE, _MASK_AFTER = "***", "*** (before)", "*** (after)"
_SECRET_FIELDS = ("data", "stringData")


class ChangeType(enum.Enum):
    """Type of a change of an object; the value is the word in outputs."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ObjectDifference:
    """An object that a run would change; None where it does not exist.

    `before` and `after` have only the fields that are compared, without values of Secrets.
    """

    ref: ObjectRef
    before: Json | None
    after: Json | None

    @property
    def change(self) -> ChangeType:
        """The type of the change."""
        if self.before is None:
            return ChangeType.CREATED
        return ChangeType.DELETED if self.after is None else ChangeType.CHANGED

    @property
    def paths(self) -> tuple[str, ...]:
        """The fields that differ; empty for an object that is created or deleted."""
        if self.before is None or self.after is None:
            return ()
        return tuple(changed_paths(self.before, self.after))

    def __str__(self) -> str:
        """`Deployment default/web changed`."""
        return f"{self.ref} {self.change.value}"


def object_difference(before: Json | None, after: Json | None) -> ObjectDifference | None:
    """Return what differs between two states of an object, None if nothing does.

    None is an object that does not exist. Both states need apiVersion and kind.
    """
    existing = after if before is None else before
    if existing is None or existing.get("kind") in _REPORTS:
        return None
    old, new = _compared(before), _compared(after)
    if old == new:
        return None
    if _is_secret(existing):
        old, new = _masked(old, new)
    return ObjectDifference(ObjectRef.of(existing), old, new)


def _compared(body: Json | None) -> Json | None:
    """Return the part of an object that its writers decide."""
    if body is None:
        return None
    metadata = body.get("metadata") or {}
    kept = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    for part, ours in (("annotations", LAST_APPLIED), ("labels", PART_OF)):
        if isinstance(values := kept.get(part), dict):
            kept[part] = {name: value for name, value in values.items() if name != ours}
            if not kept[part]:
                del kept[part]
    content = {name: value for name, value in body.items() if name not in {"metadata", "status"}}
    return {**content, "metadata": kept}


def _is_secret(body: Json) -> bool:
    gvk = GVK.of(str(body.get("apiVersion")), str(body.get("kind")))
    return (gvk.group, gvk.kind) == ("", "Secret")


def _masked(before: Json | None, after: Json | None) -> tuple[Json | None, Json | None]:
    """Mask the values of a Secret; those that differ remain different."""
    sides = [None if side is None else dict(side) for side in (before, after)]
    for name in _SECRET_FIELDS:
        values = [{} if side is None else _mapping(side.get(name)) for side in sides]
        for index, (side, mark) in enumerate(zip(sides, (_MASK_BEFORE, _MASK_AFTER), strict=True)):
            if side is not None and name in side:
                other = values[1 - index]
                side[name] = {
                    key: mark if key in other and not _is_same(other[key], value) else _MASK
                    for key, value in values[index].items()
                }
    return sides[0], sides[1]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def replacing_patch(current: Mapping[str, Any], fields: Mapping[str, Any]) -> Json:
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


def apply_merge_patch(current: Any, patch: Any) -> Any:
    """Return a value with a merge patch applied; neither of the two is changed."""
    if not isinstance(patch, Mapping):
        return patch
    result: Json = dict(current) if isinstance(current, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result
