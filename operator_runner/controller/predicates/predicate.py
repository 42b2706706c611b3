"""Whether an event of a primary resource matters, and what it changed. Pure.

The rules are ansible-operator's: a new generation, a creation, a deletion, and annotations
where the watch asks for them. Labels alone matter only if they bring the resource into
what the watch chooses.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from operator_runner.controller.predicates.field_paths import changed_paths, shown
from operator_runner.core.model import Cause, Json, Trigger, Watch

_NOT_ASKED_FOR = ("apiVersion", "kind", "metadata", "status")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of a primary resource between two of its events."""

    uid: str
    generation: int
    resource_version: str
    deleting: bool
    relevant: bool
    annotations: Mapping[str, str]
    asked: bytes | None
    """What people ask for in it, packed; None where it was dropped to save memory."""

    @classmethod
    def of(cls, body: Json, *, relevant: bool) -> Seen:
        """Take from the resource what the predicate compares."""
        metadata = body["metadata"]
        return cls(
            uid=metadata.get("uid", ""),
            generation=metadata.get("generation") or 0,
            resource_version=metadata.get("resourceVersion", ""),
            deleting=bool(metadata.get("deletionTimestamp")),
            relevant=relevant,
            annotations=_annotations(metadata),
            asked=zlib.compress(json.dumps(_asked(body)).encode(), 1),
        )


def judge(old: Seen | None, new: Seen, watch: Watch, *, listed: bool) -> Cause | None:
    """Return why the resource is to be reconciled, or None if the event does not matter.

    `listed` says that the resource was found by listing, not by an event of its own.
    """
    if old is not None and old.uid != new.uid:
        old = None
    if new.deleting:
        # A resource is cleaned up whether it is chosen or not; decide() looks at its finalizer.
        known = old is not None and old.deleting
        return None if known else Cause(Trigger.DELETION, "deletionTimestamp set")
    if not new.relevant:
        return None
    if old is None:
        return Cause(Trigger.START) if listed else Cause(Trigger.SPEC, "created")
    return _change(old, new, watch)


def spec_mark(metadata: Json) -> str:
    """Return what tells one state of a resource's spec from another."""
    return str(metadata.get("generation") or f"v{metadata.get('resourceVersion', '')}")


def annotations_mark(metadata: Json) -> str:
    """Return what tells one state of a resource's annotations from another."""
    return _digest(_annotations(metadata))


def _change(old: Seen, new: Seen, watch: Watch) -> Cause | None:
    mark = spec_mark({"generation": new.generation, "resourceVersion": new.resource_version})
    if old.generation != new.generation:
        paths = _paths(old, new)
        text = shown(paths) if paths else f"generation {old.generation} to {new.generation}"
        return Cause(Trigger.SPEC, text, mark=mark)
    if not old.relevant:
        return Cause(Trigger.SPEC, "now chosen by selector or when")
    if watch.watch_annotations_changes and old.annotations != new.annotations:
        text = _difference(old.annotations, new.annotations)
        return Cause(Trigger.ANNOTATION, text, mark=_digest(new.annotations))
    if new.generation == 0 and old.resource_version != new.resource_version:
        # Kinds without generation, such as ConfigMap, are compared by what they hold.
        paths = _paths(old, new)
        if paths is None:
            return Cause(Trigger.SPEC, f"resourceVersion {new.resource_version}", mark=mark)
        return Cause(Trigger.SPEC, shown(paths), mark=mark) if paths else None
    return None


def _paths(old: Seen, new: Seen) -> list[str] | None:
    """Return which fields differ; None if one of the two is not known any more."""
    if old.asked is None or new.asked is None:
        return None
    before, after = (json.loads(zlib.decompress(packed)) for packed in (old.asked, new.asked))
    return list(changed_paths(before, after))


def _asked(body: Json) -> Json:
    """Return what people set in a resource; of its metadata only what no generation counts."""
    asked = {name: value for name, value in body.items() if name not in _NOT_ASKED_FOR}
    metadata = body["metadata"]
    if not metadata.get("generation"):
        labels, annotations = metadata.get("labels") or {}, _annotations(metadata)
        asked["metadata"] = {"labels": labels, "annotations": annotations}
    return asked


def _annotations(metadata: Json) -> dict[str, str]:
    """Return the annotations less kubectl's copy of the whole object."""
    annotations = metadata.get("annotations") or {}
    return {key: value for key, value in annotations.items() if key != _LAST_APPLIED}


def _difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    return shown(sorted(key for key in {*old, *new} if old.get(key) != new.get(key)))


def _digest(annotations: Mapping[str, str]) -> str:
    text = json.dumps(dict(annotations), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
