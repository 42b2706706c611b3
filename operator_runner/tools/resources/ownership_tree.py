"""Arrange objects below the resource that owns them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from operator_runner.core.model import Json, ObjectRef, uid_of
from operator_runner.proxy.ownership import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION


@dataclass(slots=True)
class TreeNode:
    """An object with those that belong to it, ordered by kind, namespace and name."""

    ref: ObjectRef
    metadata: Json
    children: list[TreeNode] = field(default_factory=list)

    @property
    def all(self) -> list[TreeNode]:
        """The node and all nodes below it."""
        return [self, *(below for child in self.children for below in child.all)]


@dataclass(frozen=True, slots=True)
class LastWriter:
    """The field manager that last wrote an object, apart from its status."""

    manager: str
    at: datetime | None


def tree_of(root: Json, ref: ObjectRef, objects: Mapping[ObjectRef, Json]) -> TreeNode:
    """Return the tree of a resource; `objects` are all that may belong to it, by reference.

    An object belongs to its owners (`metadata.ownerReferences`), and to the resource that its
    annotations name, as those in other namespaces do.
    """
    by_owner: dict[str, list[ObjectRef]] = {}
    for each, body in objects.items():
        owners = {str(owner.get("uid")) for owner in body["metadata"].get("ownerReferences") or ()}
        if _names(body["metadata"], ref):
            owners.add(uid_of(root))
        for owner in owners:
            by_owner.setdefault(owner, []).append(each)
    seen = {uid_of(root)}

    def node(ref: ObjectRef, body: Json) -> TreeNode:
        # Each object is in the tree once, even if its owners form a circle.
        found = TreeNode(ref, body["metadata"])
        for each in sorted(by_owner.get(uid_of(body), ()), key=_order):
            if (uid := uid_of(objects[each])) not in seen:
                seen.add(uid)
                found.children.append(node(each, objects[each]))
        return found

    return node(ref, root)


def _order(ref: ObjectRef) -> tuple[str, str, str]:
    return ref.gvk.kind, ref.namespace, ref.name


def _names(metadata: Json, ref: ObjectRef) -> bool:
    """Return whether the annotations of an object name a resource as its owner."""
    annotations = metadata.get("annotations") or {}
    path = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
    kind = annotations.get(PRIMARY_TYPE_ANNOTATION)
    return annotations.get(PRIMARY_ANNOTATION) == path and kind == ref.gvk.kind_and_group


def last_writer(metadata: Json) -> LastWriter:
    """Return who last wrote the object, by its managedFields; empty if they are missing."""
    entries = [
        each
        for each in metadata.get("managedFields") or ()
        if each.get("manager") and not each.get("subresource")
    ]
    newest = max(entries, key=lambda each: str(each.get("time") or ""), default=None)
    if newest is None:
        return LastWriter("", None)
    try:
        at = datetime.fromisoformat(newest["time"])
    except (KeyError, TypeError, ValueError):
        at = None
    return LastWriter(str(newest["manager"]), at)
