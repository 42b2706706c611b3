"""Versions of objects whose events came before their owners were known."""

from __future__ import annotations

from collections import OrderedDict

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.core.resource_versions import may_be_older

_MAX_OBJECTS = 4096


class UnownedVersions:
    """Keeps the newest version of each object, and of the complete lists of each kind."""

    def __init__(self, enabled: bool) -> None:
        """Keep nothing unless `enabled`."""
        self._enabled = enabled
        self._listed: dict[GVK, str] = {}
        self._events: OrderedDict[ObjectRef, str] = OrderedDict()

    def listed(self, gvk: GVK, resource_version: str) -> None:
        """Note a complete list of a kind: objects that it lacks were deleted before."""
        self._raise(gvk, resource_version)

    def event(self, ref: ObjectRef, resource_version: str) -> None:
        """Note an event of an object without a known owner."""
        if not self._enabled:
            return
        self._events[ref] = resource_version
        self._events.move_to_end(ref)
        if len(self._events) > _MAX_OBJECTS:
            old, version = self._events.popitem(last=False)
            self._raise(old.gvk, version)

    def latest(self, ref: ObjectRef) -> str:
        """Return the newest version in which an object may have changed; empty if there is none."""
        return _newer(self._listed.get(ref.gvk, ""), self._events.get(ref, ""))

    def _raise(self, gvk: GVK, resource_version: str) -> None:
        self._listed[gvk] = _newer(self._listed.get(gvk, ""), resource_version)


def _newer(version: str, other: str) -> str:
    """Return the newer one of two versions, each may be empty; the second if that is unknown."""
    if not version or not other:
        return version or other
    return other if may_be_older(version, other) else version
