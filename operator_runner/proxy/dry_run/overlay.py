"""The objects of a dry run as the run has left them, over those of the cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from operator_runner.core.labels import match_labels
from operator_runner.core.model import Json, LabelSelector, LabelSelectorRequirement, uid_of
from operator_runner.core.object_diff import ObjectDifference, object_difference
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.status_errors import StatusError

_MAX_ENTRIES, _MAX_BYTES = 2000, 128 * 1024 * 1024
"""Maximum of objects that a dry run writes, and of their size together."""
_MAX_REFUSED = 200
_NAMES = ("metadata.name", "metadata.namespace")
"""Fields of a field selector that all kinds support."""
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)$")
_COMMAS = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """An object by the path of its requests; `namespace` is empty if it is cluster-scoped."""

    group: str
    resource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, info: RequestInfo, name: str = "") -> Self:
        """Return the object of a request; `name` is that of an object in a collection."""
        return cls(info.group, info.resource, info.namespace, name or info.name)


@dataclass(frozen=True, slots=True)
class OverlayEntry:
    """An object that the run has written: as it is in the cluster, and as it would be.

    None where it does not exist.
    """

    before: Json | None
    after: Json | None

    @property
    def is_update(self) -> bool:
        """Whether the run has changed an object of the cluster; it may have made a new one."""
        if self.before is None or self.after is None:
            return False
        return uid_of(self.before) == uid_of(self.after)


@dataclass(slots=True)
class DryRun:
    """The writes of a dry run. `refused` are the requests that were refused."""

    entries: dict[ObjectKey, OverlayEntry] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    size: int = 0
    """Approximate bytes of the entries."""

    def reserve(self, size: int) -> None:
        """Count the bytes of an object that is to be recorded. Raises StatusError beyond bounds."""
        if self.size + size > _MAX_BYTES:
            raise StatusError(
                413, f"the objects of this dry run are larger than {_MAX_BYTES} bytes together"
            )
        self.size += size

    def record(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        """Record the result of a write; the state before the first one is kept.

        Raises StatusError beyond the bounds.
        """
        known = self.entries.get(key)
        if known is None and len(self.entries) >= _MAX_ENTRIES:
            raise StatusError(413, f"this dry run writes more than {_MAX_ENTRIES} objects")
        self.entries[key] = OverlayEntry(before if known is None else known.before, after)

    def refuse(self, request: str) -> None:
        """Record a request that cannot be previewed, once, up to a maximum."""
        if len(self.refused) < _MAX_REFUSED and request not in self.refused:
            self.refused.append(request)

    def is_new_namespace(self, namespace: str) -> bool:
        """Return whether the run would have created a namespace."""
        entry = self.entries.get(ObjectKey("", "namespaces", "", namespace))
        return entry is not None and entry.before is None and entry.after is not None

    def touches(self, info: RequestInfo) -> bool:
        """Return whether the run has written an object of a collection."""
        return any(True for _ in self._of(info))

    def merge(
        self,
        info: RequestInfo,
        items: list[Json],
        query: Selectors,
        *,
        is_first: bool = True,
        is_last: bool = True,
    ) -> list[Json]:
        """Return the items of a collection as the run would have left them.

        `items` are those of the cluster that the selectors match, or one page of them. Objects
        that are on no page are added to the last one.
        """
        written = dict(self._of(info))
        merged = []
        for item in items:
            metadata = item.get("metadata") or {}
            namespace = str(metadata.get("namespace") or "")
            key = ObjectKey(info.group, info.resource, namespace, str(metadata.get("name")))
            entry = written.pop(key, None)
            if entry is None:
                merged.append(item)
            elif entry.after is not None and query.match(entry.after):
                merged.append(entry.after)
        for entry in written.values() if is_last else ():
            on_other_page = not is_first and entry.before is not None and query.match(entry.before)
            if entry.after is not None and query.match(entry.after) and not on_other_page:
                merged.append(entry.after)
        return merged

    def differences(self) -> list[ObjectDifference]:
        """Return the objects that would differ, in the order of their first writes."""
        found = (object_difference(entry.before, entry.after) for entry in self.entries.values())
        return [each for each in found if each is not None]

    def _of(self, info: RequestInfo) -> Iterator[tuple[ObjectKey, OverlayEntry]]:
        for key, entry in self.entries.items():
            same = (key.group, key.resource) == (info.group, info.resource)
            if same and info.namespace in {"", key.namespace}:
                yield key, entry


@dataclass(frozen=True, slots=True)
class Selectors:
    """The selectors of a list; `label` and `field` as in the query."""

    label: str = ""
    field: str = ""

    def match(self, body: Json) -> bool:
        """Return whether an object matches; names only are compared for field selectors."""
        metadata = body.get("metadata") or {}
        for term in filter(None, self.field.split(",")):
            name, _, value = term.replace("==", "=").partition("=")
            if name.strip() not in _NAMES:
                return False
            if str(metadata.get(name.strip().partition(".")[2]) or "") != value.strip():
                return False
        labels: dict[str, str] = metadata.get("labels") or {}
        requirements = tuple(map(_requirement, filter(None, _COMMAS.split(self.label))))
        return match_labels(LabelSelector({}, requirements), labels)


def _requirement(term: str) -> LabelSelectorRequirement:
    """Parse one requirement of a label selector, as `kubectl get --selector` takes it."""
    term = term.strip()
    if found := _SET.match(term):
        values = tuple(value.strip() for value in found["values"].split(","))
        operator = "In" if found["operator"] == "in" else "NotIn"
        return LabelSelectorRequirement(found["key"], operator, values)
    if "!=" in term:
        key, _, value = term.partition("!=")
        return LabelSelectorRequirement(key.strip(), "NotIn", (value.strip(),))
    if "=" in term:
        key, _, value = term.replace("==", "=").partition("=")
        return LabelSelectorRequirement(key.strip(), "In", (value.strip(),))
    if term.startswith("!"):
        return LabelSelectorRequirement(term[1:].strip(), "DoesNotExist")
    return LabelSelectorRequirement(term, "Exists")
