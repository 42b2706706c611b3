"""The objects that resources own, as last seen.

For watches whose `status` uses `dependents`, and for those of `apply: server-side`, whose runs need
no read of such an object before they apply it. They are what responses to runs and the watches of
dependents show: nothing else is requested. They are kept as compressed JSON, whole for an apply,
else without managed fields and without any data but spec and status. Secrets have no data here.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.watch import EventType, MetadataEvent

_log = structlog.get_logger(__name__)
_MAX_OBJECTS = 1000
"""Objects of one resource; further ones are left out."""
_MAX_BYTES = 64 * 1024**2
"""Compressed bytes of all objects; a Deployment has 1 or 2 KiB."""
_PARTS = ("spec", "status")


class ObjectContent(NamedTuple):
    """An object as compressed JSON, and whether that is all of it."""

    compressed: bytes
    is_whole: bool = False


_NOTHING = ObjectContent(b"")
"""The content of an object that a run has deleted."""


@dataclass(frozen=True, slots=True)
class ObjectExtract:
    """Extract of a whole object, kept beside its metadata and health.

    `values` are those of chosen fields as text, by expression. `content` is the object, None if it
    is not wanted.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    content: ObjectContent | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """An object: its last version and its content."""

    uid: str
    version: str
    content: ObjectContent


@dataclass(frozen=True, slots=True)
class _OwnedObjects:
    """The objects of one resource that are kept."""

    owner: ObjectRef
    ended: Callable[[_OwnedObjects], None]
    refs: set[ObjectRef] = field(default_factory=set)

    def close(self) -> None:
        """See `SupportsClose`."""
        self.ended(self)


class DependentObjects:
    """Keeps the objects of resources by owner. Not thread-safe."""

    def __init__(self, watches: Sequence[Watch], states: ResourceStates) -> None:
        """Keep objects of the kinds of these watches that use them.

        `states` have those of each owner.
        """
        self._states = states
        self._declaring = {
            watch.gvk for watch in watches if watch.status and watch.status.uses_dependents
        }
        self._applying = {watch.gvk for watch in watches if watch.field_manager}
        self._kinds = self._declaring | self._applying
        self._owner_kinds = {(gvk.group, gvk.kind) for gvk in self._kinds}
        self._objects: dict[ObjectRef, _Kept] = {}
        self._owners: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)
        self._bytes = 0
        self._is_full = False

    @property
    def is_used(self) -> bool:
        """Whether any watch uses the objects."""
        return bool(self._kinds)

    def of(self, owner: ObjectRef) -> list[Json]:
        """Return the objects of a resource, ordered by kind, namespace and name."""
        owned = self._states.find(owner, _OwnedObjects)
        refs = sorted(
            () if owned is None else owned.refs,
            key=lambda ref: (ref.gvk.kind, ref.namespace, ref.name, ref.gvk),
        )
        found = ((ref, self._objects.get(ref)) for ref in refs)
        return [
            {
                "apiVersion": ref.gvk.api_version,
                "kind": ref.gvk.kind,
                **_shown(_decoded(kept.content)),
            }
            for ref, kept in found
            if kept is not None and kept.content is not _NOTHING
        ]

    def newest(self, owner: ObjectRef, ref: ObjectRef) -> bytes | None:
        """Return an object of a resource as JSON, None if not all of it is known.

        It may have changed since: a write of it has to name its resourceVersion.
        """
        kept = self._objects.get(ref)
        if kept is None or not kept.content.is_whole or owner not in self._owners[ref]:
            return None
        return zlib.decompress(kept.content.compressed)

    def content(self, body: Json) -> ObjectContent | None:
        """Return what is kept of a whole object; None if no resource can own it."""
        metadata = body["metadata"]
        if not self._kinds:
            return None
        owners = metadata.get("ownerReferences") or ()
        kinds = {
            (gvk.group, gvk.kind)
            for gvk in (GVK.of(each.get("apiVersion", ""), each.get("kind", "")) for each in owners)
        }
        # Objects without such a reference to their owner may have annotations that name it.
        is_owned = bool(kinds & self._owner_kinds) or not owners
        return self._content(body) if is_owned else None

    def _content(self, body: Json) -> ObjectContent:
        if self._applying and _is_whole(body):
            return _compressed(body, is_whole=True)
        return _compressed(_shown(body))

    def on_response(self, owner: ObjectRef, ref: ObjectRef, body: Json) -> None:
        """Record an object of `owner` in a response to a run."""
        if owner.gvk not in self._kinds:
            return
        owned = self._states.of(owner).slot(_OwnedObjects, owner, self._owner_ended).refs
        if ref not in owned and len(owned) >= _MAX_OBJECTS:
            self._warn(owner)
            return
        owned.add(ref)
        self._owners[ref].add(owner)
        kept = self._objects.get(ref)
        if kept is None or not self._is_same(kept, body):
            self._put(ref, body, self._content(body))

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
        if kept.content is _NOTHING and kept.uid == uid_of(event.body) and not is_deleting:
            return  # older than the deletion by the run
        if self._is_same(kept, event.body):
            return  # a write of the run, which its response has shown
        if isinstance(event.extracted, ObjectExtract):
            content = event.extracted.content
        else:
            content = _with_metadata(kept.content, event.body)
        if content is not None:
            self._put(ref, event.body, content)

    def deleted_by_run(self, ref: ObjectRef) -> None:
        """Record that a run has deleted an object; finalizers may still hold it."""
        if (kept := self._objects.get(ref)) is not None:
            self._bytes -= len(kept.content.compressed)
            self._objects[ref] = _Kept(kept.uid, kept.version, _NOTHING)

    def _owner_ended(self, owned: _OwnedObjects) -> None:
        for ref in tuple(owned.refs):
            self._owners[ref].discard(owned.owner)
            if not self._owners[ref]:
                self._discard(ref)

    @staticmethod
    def _is_same(kept: _Kept, body: Json) -> bool:
        """Return whether all of an object is kept in the version of a body."""
        version = body["metadata"].get("resourceVersion")
        return kept.content.is_whole and (kept.uid, kept.version) == (uid_of(body), version)

    def _put(self, ref: ObjectRef, body: Json, content: ObjectContent) -> None:
        old, version = self._objects.get(ref), str(body["metadata"].get("resourceVersion") or "")
        if old is not None and old.uid == uid_of(body) and is_certainly_older(version, old.version):
            return
        grown = self._bytes + len(content.compressed)
        grown -= 0 if old is None else len(old.content.compressed)
        if grown > _MAX_BYTES:
            self._warn(ref)
            self._discard(ref)
            return
        self._bytes = grown
        self._objects[ref] = _Kept(uid_of(body), version, content)

    def _discard(self, ref: ObjectRef) -> None:
        if (kept := self._objects.pop(ref, None)) is not None:
            self._bytes -= len(kept.content.compressed)
        for owner in self._owners.pop(ref, ()):
            if (owned := self._states.find(owner, _OwnedObjects)) is not None:
                owned.refs.discard(ref)

    def _warn(self, ref: ObjectRef) -> None:
        if self._declaring and not self._is_full:
            _log.warning(
                "Too many objects for `dependents` of a status; further ones are left out",
                object=str(ref),
                max_objects=_MAX_OBJECTS,
                max_bytes=_MAX_BYTES,
                hint="write such a status with k8s_status in the role",
            )
        self._is_full = True


def _is_whole(body: Json) -> bool:
    """Return whether runs may get an object from here. See core/json_bounds.py for outlines."""
    is_outline = any(body[part] in ({}, []) for part in body.keys() - {"metadata", "status"})
    return not is_outline and body.get("kind") != "Secret"


def _shown(body: Json) -> Json:
    """Return what expressions see of an object."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    if LAST_APPLIED in (metadata.get("annotations") or ()):
        annotations = metadata["annotations"]
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
    return {"metadata": metadata, **{part: body[part] for part in _PARTS if part in body}}


def _compressed(body: Json, *, is_whole: bool = False) -> ObjectContent:
    return ObjectContent(zlib.compress(json.dumps(body, separators=(",", ":")).encode()), is_whole)


def _decoded(content: ObjectContent) -> Json:
    found: Json = json.loads(zlib.decompress(content.compressed))
    return found


def _with_metadata(old: ObjectContent, body: Json) -> ObjectContent:
    """Return the content with the metadata of an event; a spec only if it is the same."""
    known = {"metadata": {}} if old is _NOTHING else _decoded(old)
    generation = body["metadata"].get("generation")
    is_same = generation is not None and generation == known["metadata"].get("generation")
    parts = {part: known[part] for part in _PARTS if part in known} if is_same else {}
    return _compressed(_shown({"metadata": body["metadata"], **parts}))
