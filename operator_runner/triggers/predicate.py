"""Whether an event of a primary resource matters. Pure.

The rules are ansible-operator's: a new generation, a creation, a deletion, and annotations
where the watch asks for them. Labels alone matter only if they bring the resource into
what the watch chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from operator_runner.model import Cause, Json, Trigger, Watch


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of a primary resource between two of its events."""

    uid: str
    generation: int
    resource_version: str
    deleting: bool
    relevant: bool
    annotations: Mapping[str, str]

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
            annotations=metadata.get("annotations") or {},
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


def _change(old: Seen, new: Seen, watch: Watch) -> Cause | None:
    if old.generation != new.generation:
        return Cause(Trigger.SPEC, f"generation {old.generation} to {new.generation}")
    if not old.relevant:
        return Cause(Trigger.SPEC, "now chosen by selector or when")
    if watch.watch_annotations_changes and old.annotations != new.annotations:
        return Cause(Trigger.ANNOTATION, _difference(old.annotations, new.annotations))
    if new.generation == 0 and old.resource_version != new.resource_version:
        # Kinds without generation, such as ConfigMap, tell nothing better.
        return Cause(Trigger.SPEC, f"resourceVersion {new.resource_version}")
    return None


def _difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return ", ".join(keys)
