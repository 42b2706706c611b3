"""Decide whether fields that a role could have set changed in an owned object. Pure.

Only metadata is watched: `generation` counts the changes of a spec, labels and annotations can be
compared, and for kinds without a generation `managedFields` distinguishes a write of the status
from others. `managedFields` also names the writer and its fields. Its times have whole seconds, so
that its entries are compared first. Source: Kubernetes API conventions on generation and on field
management.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from operator_runner.core.model import LAST_APPLIED, PART_OF, Json, is_certainly_older
from operator_runner.core.object_diff import changed_paths, managed_paths, summarize

_COMPARED = ("labels", "annotations", "ownerReferences", "finalizers")
"""Metadata that a role may have set; the API server maintains the rest."""


_Entries: TypeAlias = Mapping[tuple[str, str], Json]
"""Entries of managedFields by manager and operation."""


@dataclass(frozen=True, slots=True)
class Version:
    """The state of an owned object that is kept between two of its events."""

    uid: str
    resource_version: str
    generation: int
    deleting: bool
    fields: bytes
    """The entries of managedFields except those of the status, as compressed JSON."""
    status: str
    """Digest of the entries of managedFields for the status."""
    status_last: bool
    """Whether the last write was certainly one of the status."""
    metadata: str
    """Labels, annotations, owners and finalizers, with digests for values, as JSON.

    Without those written with the status, such as the revision of a Deployment.
    """

    @classmethod
    def of(cls, metadata: Json) -> Version:
        """Extract what is compared from an object's metadata."""
        managed = metadata.get("managedFields") or []
        of_status = [entry for entry in managed if entry.get("subresource") == "status"]
        others = [entry for entry in managed if entry.get("subresource") != "status"]
        return cls(
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
            generation=metadata.get("generation") or 0,
            deleting=bool(metadata.get("deletionTimestamp")),
            fields=zlib.compress(_text(others).encode()),
            status=_digest(of_status),
            status_last=_latest(of_status) > _latest(others),
            metadata=_text(_compared(metadata, of_status, others)),
        )

    def is_older_than(self, other: Version) -> bool:
        """Return whether this version of the same object was written before the other.

        resourceVersions of one kind compare as numbers since Kubernetes 1.35; others give False.
        """
        return self.uid == other.uid and self.was_written_before(other.resource_version)

    def was_written_before(self, resource_version: str) -> bool:
        """Return whether this version is certainly older than a resourceVersion of its kind."""
        return is_certainly_older(self.resource_version, resource_version)


def difference(old: Version, new: Version) -> str:
    """Return the difference between two versions, for display; empty if it is not relevant.

    `changed by kubectl-edit (spec.replicas)`: the fields are those that the writer newly manages,
    or all that it manages if there are no new ones.
    """
    if old.uid != new.uid:
        return "replaced"
    if new.deleting and not old.deleting:
        return "being deleted"
    return _described(old, new) if _is_changed(old, new) else ""


def _is_changed(old: Version, new: Version) -> bool:
    if old.generation != new.generation:
        return True
    if new.generation or old.metadata != new.metadata:
        # All but metadata and status is counted by the generation.
        return old.metadata != new.metadata
    if old.fields == new.fields and (new.status_last or old.status != new.status):
        return False
    # A second write by the same manager within one second leaves no other trace.
    return old.resource_version != new.resource_version


def _described(old: Version, new: Version) -> str:
    """Return who changed which fields, as far as the metadata shows."""
    before, after = _by_manager(old.fields), _by_manager(new.fields)
    writers = [who for who, entry in after.items() if _has_written(before.get(who), entry)]
    if old.metadata != new.metadata and old.generation == new.generation:
        paths = list(changed_paths(json.loads(old.metadata), json.loads(new.metadata), "metadata"))
    else:
        paths = _fields(writers, before, after)
    by = summarize([name for name, _ in writers])
    text = f"changed by {by}" if by else "changed"
    return f"{text} ({summarize(paths)})" if paths else text


def _has_written(before: Json | None, after: Json) -> bool:
    """Return whether a manager wrote; one that only lost fields to another keeps its time."""
    if before is None or before.get("time") != after.get("time"):
        return True
    return bool(_gained(_managed(before), _managed(after)))


def _fields(writers: list[tuple[str, str]], before: _Entries, after: _Entries) -> list[str]:
    all_ = [path for who in writers for path in _managed(after[who])]
    had = [path for who in writers for path in _managed(before.get(who) or {})]
    # Fields of the object are more relevant than those of its metadata.
    return sorted(_gained(had, all_) or all_, key=lambda path: path.startswith("metadata."))


def _gained(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the new paths; a map that lost its fields to other managers is a leaf itself.

    Objects of others may have 100,000 fields: each is looked up in sorted paths.
    """
    had = sorted(before)
    return [path for path in after if not _has_within(had, path)]


def _has_within(paths: Sequence[str], path: str) -> bool:
    """Return whether sorted paths contain the path, or one below it."""
    return _first_from(paths, path) == path or any(
        _first_from(paths, start).startswith(start) for start in (f"{path}.", f"{path}[")
    )


def _first_from(paths: Sequence[str], start: str) -> str:
    """Return the first of sorted paths that is not before `start`, empty if there is none."""
    index = bisect_left(paths, start)
    return paths[index] if index < len(paths) else ""


def _managed(entry: Json) -> list[str]:
    return list(managed_paths(entry.get("fieldsV1") or {}))


def _by_manager(fields: bytes) -> dict[tuple[str, str], Json]:
    entries = json.loads(zlib.decompress(fields))
    return {(entry.get("manager", ""), entry.get("operation", "")): entry for entry in entries}


def _latest(entries: list[Json]) -> str:
    return max((entry.get("time") or "" for entry in entries), default="")


def _compared(metadata: Json, of_status: list[Json], others: list[Json]) -> Json:
    """Return the metadata that a role may have set, without what is written with the status."""
    return {
        key: _digests(
            metadata.get(key) or {},
            _keys(key, of_status) - _keys(key, others) | {LAST_APPLIED, PART_OF},
        )
        for key in _COMPARED
    }


def _keys(part: str, entries: list[Json]) -> set[str]:
    """Return the keys of labels or annotations in these entries of managedFields."""
    fields = (entry.get("fieldsV1", {}).get("f:metadata", {}) for entry in entries)
    return {key.removeprefix("f:") for one in fields for key in one.get(f"f:{part}", {})}


def _digests(values: Any, without: set[str]) -> Any:
    """Replace values by digests, because annotations may hold secrets or large texts."""
    if isinstance(values, dict):
        return {key: _digest(value) for key, value in values.items() if key not in without}
    return sorted(_digest(value) for value in values)


def _digest(value: Any) -> str:
    return hashlib.sha256(_text(value).encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
