"""Compare an object before and after a run, for display. Pure.

What the API server maintains (status, resourceVersion, managedFields) is not compared. Values of
Secrets are masked as `kubectl diff` does.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Any

from operator_runner.core.field_paths import changed_paths
from operator_runner.core.model import GVK, LAST_APPLIED, Json, ObjectRef

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
    annotations = kept.get("annotations")
    if isinstance(annotations, dict):
        kept["annotations"] = {
            name: value for name, value in annotations.items() if name != LAST_APPLIED
        }
        if not kept["annotations"]:
            del kept["annotations"]
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
                    key: mark if key in other and not _same(other[key], value) else _MASK
                    for key, value in values[index].items()
                }
    return sides[0], sides[1]


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
