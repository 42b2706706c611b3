"""The objects that resources own, as last seen, for watches whose `status` uses `dependents`.

They are what responses to runs and the watches of dependents show: nothing else is requested. They
are kept as compressed JSON, without managed fields and without any data but spec and status.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from operator_runner.core.model import (
    GVK,
    LAST_APPLIED,
    Json,
    ObjectRef,
    Watch,
    is_certainly_older,
    uid_of,
)
from operator_runner.kube.watch import EventType, MetadataEvent

_log = structlog.get_logger(__name__)
_MAX_OBJECTS = 1000
"""Objects of one resource; further ones are left out."""
_MAX_BYTES = 64 * 1024**2
"""Compressed bytes of all objects; a Deployment has 1 or 2 KiB."""
_PARTS = ("spec", "status")


@dataclass(frozen=True, slots=True)
class ObjectExtract:
    """Extract of a whole object, kept beside its metadata and health.

    `values` are those of chosen fields as text, by expression. `content` is the object as
    compressed JSON, empty if it is not wanted.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An object: its last version, and its content, empty if a run has deleted it."""

    uid: str
    version: str
    content: bytes


class DependentObjects:
    """Keeps the objects of resources by owner. Not thread-safe."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        """Keep objects of the kinds of these watches that use them."""
        self._kinds = {
            watch.gvk for watch in watches if watch.status and watch.status.uses_dependents
        }
        self._owner_kinds = {(gvk.group, gvk.kind) for gvk in self._kinds}
        self._objects: dict[ObjectRef, _Kept] = {}
        self._owned: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)
        self._owners: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)
        self._bytes = 0
        self._is_full = False

    @property
    def is_used(self) -> bool:
        """Whether the status of any watch uses the objects."""
        return bool(self._kinds)

    def of(self, owner: ObjectRef) -> list[Json]:
        """Return the objects of a resource, ordered by kind, namespace and name."""
        refs = sorted(
            self._owned.get(owner, ()),
            key=lambda ref: (ref.gvk.kind, ref.namespace, ref.name, ref.gvk),
        )
        found = ((ref, self._objects.get(ref)) for ref in refs)
        return [
            {
                "apiVersion": ref.gvk.api_version,
                "kind": ref.gvk.kind,
                **json.loads(zlib.decompress(kept.content)),
            }
            for ref, kept in found
            if kept is not None and kept.content
        ]

    def content(self, body: Json) -> bytes:
        """Return what is kept of a whole object; empty if no resource can own it."""
        metadata = body["metadata"]
        if not self._kinds:
            return b""
        owners = metadata.get("ownerReferences") or ()
        kinds = {
            (gvk.group, gvk.kind)
            for gvk in (GVK.of(each.get("apiVersion", ""), each.get("kind", "")) for each in owners)
        }
        # Objects without such a reference to their owner may have annotations that name it.
        is_owned = bool(kinds & self._owner_kinds) or not owners
        return _compressed(body) if is_owned else b""

    def on_response(self, owner: ObjectRef, ref: ObjectRef, body: Json) -> None:
        """Record an object of `owner` in a response to a run."""
        if owner.gvk not in self._kinds:
            return
        owned = self._owned[owner]
        if ref not in owned and len(owned) >= _MAX_OBJECTS:
            self._warn(owner)
            return
        owned.add(ref)
        self._owners[ref].add(owner)
        self._put(ref, body, _compressed(body))

    def on_event(self, ref: ObjectRef, event: MetadataEvent) -> None:
        """Update an object by an event of its watch."""
        kept = self._objects.get(ref)
        if kept is None:
            return
        if event.type is EventType.DELETED:
            if kept.uid == uid_of(event.body):
                self._discard(ref)
            return
        is_deleting = "deletionTimestamp" in event.body["metadata"]
        if not kept.content and kept.uid == uid_of(event.body) and not is_deleting:
            return  # older than the deletion by the run
        if isinstance(event.extracted, ObjectExtract):
            content = event.extracted.content
        else:
            content = _with_metadata(kept, event.body)
        if content:
            self._put(ref, event.body, content)

    def deleted_by_run(self, ref: ObjectRef) -> None:
        """Record that a run has deleted an object; finalizers may still hold it."""
        if (kept := self._objects.get(ref)) is not None:
            self._bytes -= len(kept.content)
            self._objects[ref] = _Kept(kept.uid, kept.version, b"")

    def forget(self, owner: ObjectRef) -> None:
        """Drop the objects of a deleted owner."""
        for ref in self._owned.pop(owner, ()):
            self._owners[ref].discard(owner)
            if not self._owners[ref]:
                self._discard(ref)

    def _put(self, ref: ObjectRef, body: Json, content: bytes) -> None:
        old, version = self._objects.get(ref), str(body["metadata"].get("resourceVersion") or "")
        if old is not None and old.uid == uid_of(body) and is_certainly_older(version, old.version):
            return
        grown = self._bytes + len(content) - (len(old.content) if old is not None else 0)
        if grown > _MAX_BYTES:
            self._warn(ref)
            self._discard(ref)
            return
        self._bytes = grown
        self._objects[ref] = _Kept(uid_of(body), version, content)

    def _discard(self, ref: ObjectRef) -> None:
        if (kept := self._objects.pop(ref, None)) is not None:
            self._bytes -= len(kept.content)
        for owner in self._owners.pop(ref, ()):
            self._owned[owner].discard(ref)
            if not self._owned[owner]:
                del self._owned[owner]

    def _warn(self, ref: ObjectRef) -> None:
        if not self._is_full:
            _log.warning(
                "Too many objects for `dependents` of a status; further ones are left out",
                object=str(ref),
                max_objects=_MAX_OBJECTS,
                max_bytes=_MAX_BYTES,
                hint="write such a status with k8s_status in the role",
            )
        self._is_full = True


def _compressed(body: Json) -> bytes:
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    if LAST_APPLIED in (metadata.get("annotations") or ()):
        annotations = metadata["annotations"]
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
    kept = {"metadata": metadata, **{part: body[part] for part in _PARTS if part in body}}
    return zlib.compress(json.dumps(kept, separators=(",", ":")).encode())


def _with_metadata(kept: _Kept, body: Json) -> bytes:
    """Return the content with the metadata of an event; a spec only if it is the same."""
    old = json.loads(zlib.decompress(kept.content)) if kept.content else {"metadata": {}}
    generation = body["metadata"].get("generation")
    is_same = generation is not None and generation == old["metadata"].get("generation")
    parts = {part: old[part] for part in _PARTS if part in old} if is_same else {}
    return _compressed({"metadata": body["metadata"], **parts})
