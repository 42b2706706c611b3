"""Whether an owned object changed in what a role could have asked for. Pure.

Only metadata is watched, so the question is answered from it: `generation` counts the
changes of a spec, and for kinds without one `managedFields` tells a write of the status
from all others. Source: Kubernetes API convention on generation and on field management.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from operator_runner.model import Json


@dataclass(frozen=True, slots=True)
class Version:
    """What is remembered of an owned object between two of its events."""

    uid: str
    resource_version: str
    generation: int
    deleting: bool
    fields: str
    """Who manages which fields except those of the status, as one text."""
    status_fields: str
    """The same of the status."""

    @classmethod
    def of(cls, metadata: Json) -> Version:
        """Take from an object's metadata what tells one version from another."""
        managed = metadata.get("managedFields") or []
        return cls(
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
            generation=metadata.get("generation") or 0,
            deleting=bool(metadata.get("deletionTimestamp")),
            fields=_text([entry for entry in managed if entry.get("subresource") != "status"]),
            status_fields=_text([e for e in managed if e.get("subresource") == "status"]),
        )

    def is_older_than(self, other: Version) -> bool:
        """Whether this version of the same object was written before the other.

        resourceVersions of one kind compare as numbers since Kubernetes 1.35; where they
        are no numbers, nothing is known.
        """
        mine, theirs = self.resource_version, other.resource_version
        if self.uid != other.uid or not (mine.isdigit() and theirs.isdigit()):
            return False
        return int(mine) < int(theirs)


def difference(old: Version, new: Version) -> str:
    """Say what happened between two versions, or return an empty text if nothing that matters."""
    if old.uid != new.uid:
        return "replaced"
    if new.deleting and not old.deleting:
        return "being deleted"
    if old.generation != new.generation:
        return f"changed (generation {old.generation} to {new.generation})"
    if old.fields != new.fields:
        return "changed"
    if new.generation or old.resource_version == new.resource_version:
        return ""
    # Times of managedFields have whole seconds: a second write by the same manager within
    # one of them leaves no other trace than the resourceVersion.
    return "" if old.status_fields != new.status_fields else "changed"


def _text(entries: list[Json]) -> str:
    return json.dumps(entries, sort_keys=True)
