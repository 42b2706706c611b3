"""Decide whether an event of a primary resource starts a reconcile, and with which cause.

Pure, but for `SeenResources`, which keeps what the events have shown.

The rules are ansible-operator's: a new generation, a creation, a deletion, and annotations if the
watch enables them. Labels alone matter only if the resource then matches the watch's selector, or
no longer matches it and has to be deselected. An edit of the status leaves the generation as it
is, and starts nothing.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from operator_runner.core.model import (
    CREATED,
    GVK,
    LAST_APPLIED,
    Cause,
    Json,
    ObjectRef,
    Trigger,
    Watch,
    desired_state,
)
from operator_runner.core.object_diff import changed_paths, summarize
from operator_runner.reconcile.annotations import (
    ANNOTATIONS,
    ERROR_CHANGED,
    read_overrides,
    requested_change,
)

_MAX_COMPARED_BYTES = 256 * 1024
"""Larger desired states are not compared to name the fields that an edit changed: 50 ms."""


@dataclass(frozen=True, slots=True)
class SeenResource:
    """The state of a primary resource that is kept between two of its events."""

    uid: str
    generation: int
    resource_version: str
    deleting: bool
    selected: bool
    deselected: bool
    """Whether the `deselection` of the watch has to run."""
    annotations: Mapping[str, str]
    desired: bytes | None
    """The desired state, compressed; None if it is large, or was dropped to save memory."""
    created: float = 0.0
    """creationTimestamp in seconds since the epoch; 0 without one."""
    digest: str = ""
    """Digest of the desired state; empty where the generation counts its changes."""

    @property
    def may_run(self) -> bool:
        """Whether a reconcile may have something to do."""
        return self.selected or self.deleting or self.deselected

    @classmethod
    def of(
        cls,
        body: Json,
        *,
        selected: bool,
        deselected: bool = False,
        ignored: str = "",
        built_in: bool = False,
    ) -> SeenResource:
        """Extract what the predicate compares; `ignored` is an annotation of the runner's own.

        `built_in` is whether the kind is one of Kubernetes, where an annotation may be a new
        generation.
        """
        metadata = body["metadata"]
        desired = _desired(body, ignored)
        text = json.dumps(desired).encode()
        return cls(
            uid=metadata.get("uid", ""),
            generation=metadata.get("generation") or 0,
            resource_version=metadata.get("resourceVersion", ""),
            deleting=bool(metadata.get("deletionTimestamp")),
            selected=selected,
            deselected=deselected,
            annotations=_annotations(metadata),
            created=_seconds(metadata.get("creationTimestamp")),
            desired=zlib.compress(text, 1) if len(text) <= _MAX_COMPARED_BYTES else None,
            digest=""
            if metadata.get("generation") and not ignored and not built_in
            else _digest(desired),
        )


LIMIT = 16 * 1024**2
"""Bytes of compressed specs, some 10,000 resources; beyond it causes name generations only."""


class SeenResources:
    """The resources that exist according to their events, and the last seen state of each.

    The specs that were seen least recently are dropped first.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """Keep at most `limit` bytes of specs."""
        self._limit = limit
        self._size = 0
        self._seen: OrderedDict[ObjectRef, SeenResource] = OrderedDict()

    def of_kind(self, gvk: GVK) -> list[ObjectRef]:
        """Return the resources of a kind."""
        return [ref for ref in self._seen if ref.gvk == gvk]

    def items(self) -> list[tuple[ObjectRef, SeenResource]]:
        """Return all resources with their states."""
        return list(self._seen.items())

    def version(self, ref: ObjectRef) -> str:
        """Return the newest resourceVersion seen in events; empty if the resource is not known."""
        seen = self._seen.get(ref)
        return seen.resource_version if seen is not None else ""

    def uid(self, ref: ObjectRef) -> str:
        """Return the uid of the existing resource of this name; empty if it does not exist."""
        seen = self._seen.get(ref)
        return seen.uid if seen is not None else ""

    def is_reconciled(self, ref: ObjectRef) -> bool:
        """Return whether events lead to runs: the resource matches its watch, or is deleted."""
        seen = self._seen.get(ref)
        return seen is not None and (seen.selected or seen.deleting)

    def get(self, ref: ObjectRef) -> SeenResource | None:
        """Return the last seen state of a resource, or None."""
        return self._seen.get(ref)

    def put(self, ref: ObjectRef, seen: SeenResource) -> None:
        """Store the state of a resource."""
        self.drop(ref)
        self._seen[ref] = seen
        self._size += len(seen.desired or b"")
        if self._size > self._limit:
            self._shrink()

    def drop(self, ref: ObjectRef) -> None:
        """Remove a deleted resource."""
        old = self._seen.pop(ref, None)
        if old is not None:
            self._size -= len(old.desired or b"")

    def _shrink(self) -> None:
        for ref, seen in self._seen.items():
            if seen.desired is not None:
                self._size -= len(seen.desired)
                self._seen[ref] = replace(seen, desired=None)
            if self._size <= self._limit:
                return


def reconcile_cause(
    old: SeenResource | None, new: SeenResource, watch: Watch, *, listed: bool
) -> Cause | None:
    """Return the cause of a reconcile, or None if the event does not matter.

    `listed` means that the resource was found by listing, not by an event of its own.
    """
    if old is not None and old.uid != new.uid:
        old = None
    if old is not None and (detail := _request(old, new)):
        return Cause(Trigger.ANNOTATION, detail, state_key=_digest(new.annotations))
    # A resource is cleaned up even if it is not selected; decide() checks its finalizer.
    if new.deleting and (old is None or not old.deleting):
        return Cause(Trigger.DELETION, "deletionTimestamp set")
    if new.deselected and not new.deleting and (old is None or not old.deselected):
        trigger = Trigger.START if old is None and listed else Trigger.SPEC
        return Cause(trigger, "no longer matches selector and when")
    # An edit may correct what a clean-up fails at.
    if not (new.selected or new.deselected or new.deleting):
        return None
    if old is None:
        return Cause(Trigger.START) if listed else CREATED
    return _change(old, new, watch)


def ignored_annotation(watch: Watch) -> str:
    """Return the annotation that the runner itself sets on resources of a watch; empty if none."""
    return watch.deselection.annotation if watch.deselection is not None else ""


def spec_state_key(metadata: Json) -> str:
    """Return a key that identifies the state of a resource's spec."""
    return str(metadata.get("generation") or f"v{metadata.get('resourceVersion', '')}")


def annotations_state_key(metadata: Json) -> str:
    """Return a key that identifies the state of a resource's annotations."""
    return _digest(_annotations(metadata))


def _request(old: SeenResource, new: SeenResource) -> str:
    """Return what a user requests by the annotations of the runner; empty for nothing."""
    is_handled = new.selected or new.deselected or new.deleting
    return requested_change(old.annotations, new.annotations) if is_handled else ""


def _override_error(state: SeenResource, watch: Watch) -> str:
    """Return the error of the annotations with which a resource is not run; empty for none."""
    body = {"metadata": {"annotations": state.annotations}}
    return read_overrides(body, as_job=watch.job is not None).error


def _change(old: SeenResource, new: SeenResource, watch: Watch) -> Cause | None:
    key = spec_state_key({"generation": new.generation, "resourceVersion": new.resource_version})
    if old.generation != new.generation and not _is_only_marked(old, new, watch):
        paths = _paths(old, new)
        text = summarize(paths) if paths else f"generation {old.generation} to {new.generation}"
        return Cause(Trigger.SPEC, text, state_key=key)
    if new.selected and not old.selected:
        return Cause(Trigger.SPEC, "now matches selector and when")
    if watch.watch_annotations_changes and (
        keys := _differing(old.annotations, new.annotations) - _own_annotations(watch)
    ):
        text = summarize(sorted(keys))
        return Cause(Trigger.ANNOTATION, text, state_key=_digest(new.annotations))
    if new.generation == 0 and old.digest != new.digest:
        # Kinds without generation, such as ConfigMap, are compared by content.
        paths = _paths(old, new)
        text = summarize(paths) if paths else f"resourceVersion {new.resource_version}"
        return Cause(Trigger.SPEC, text, state_key=key)
    # The next retry may be 16 minutes away.
    if _override_error(old, watch) not in {"", _override_error(new, watch)}:
        return Cause(Trigger.ANNOTATION, ERROR_CHANGED, state_key=_digest(new.annotations))
    return None


def _is_only_marked(old: SeenResource, new: SeenResource, watch: Watch) -> bool:
    """Return whether only our annotations differ: a new generation of a Deployment."""
    keys = _differing(old.annotations, new.annotations)
    is_same = bool(old.digest) and old.digest == new.digest
    return is_same and bool(keys) and keys <= _own_annotations(watch)


def _own_annotations(watch: Watch) -> frozenset[str]:
    return ANNOTATIONS | {ignored_annotation(watch)}


def _paths(old: SeenResource, new: SeenResource) -> list[str] | None:
    """Return the paths of the fields that differ; None if one of the two specs is not kept."""
    if old.desired is None or new.desired is None:
        return None
    before, after = (json.loads(zlib.decompress(packed)) for packed in (old.desired, new.desired))
    return list(changed_paths(before, after))


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _desired(body: Json, ignored: str) -> Json:
    """Return the desired state of a resource; its metadata only if it has no generation."""
    desired = desired_state(body)
    metadata = body["metadata"]
    if not metadata.get("generation"):
        labels, annotations = metadata.get("labels") or {}, _annotations(metadata)
        others = {k: v for k, v in annotations.items() if k != ignored and k not in ANNOTATIONS}
        desired["metadata"] = {"labels": labels, "annotations": others}
    return desired


def _annotations(metadata: Json) -> dict[str, str]:
    """Return the annotations without kubectl's copy of the whole object."""
    annotations = metadata.get("annotations") or {}
    return {key: value for key, value in annotations.items() if key != LAST_APPLIED}


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(dict(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
