"""Read the target and the checkpoint of a migration from its CRD. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import ANNOTATION_DOMAIN, Json

ANNOTATION = f"{ANNOTATION_DOMAIN}/storage-migration"
"""Annotation of the CRD with the checkpoint of a running or interrupted migration."""


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """The fields of a CRD that a migration needs; an edit of its spec changes `generation`."""

    name: str
    uid: str
    generation: int
    group: str
    plural: str
    storage: str
    """Version that objects are written in."""
    stored: tuple[str, ...]
    """Versions that objects may be stored in: status.storedVersions."""
    served: tuple[str, ...]

    @classmethod
    def of(cls, crd: Json) -> MigrationTarget:
        """Read a CRD. Raises ConfigError if its storage version is not served."""
        metadata, spec = crd["metadata"], crd["spec"]
        storage = next(v["name"] for v in spec["versions"] if v["storage"])
        served = tuple(v["name"] for v in spec["versions"] if v["served"])
        if storage not in served:
            raise ConfigError(
                f"{metadata['name']}: storage version {storage} is not served; set `served: true` "
                f"for {storage} in the CRD"
            )
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            group=spec["group"],
            plural=spec["names"]["plural"],
            storage=storage,
            stored=tuple(crd.get("status", {}).get("storedVersions") or ()),
            served=served,
        )

    @property
    def is_done(self) -> bool:
        """Whether every object is stored in the storage version."""
        return self.stored == (self.storage,)

    @property
    def readable(self) -> tuple[str, ...]:
        """Versions to try for a list, in order.

        An object that cannot be converted fails the list in the storage version; listing the
        version that it is stored in needs no conversion.
        """
        return (self.storage, *(version for version in self.served if version != self.storage))

    def path(self, version: str, namespace: str = "", name: str = "") -> str:
        """Return the API path of all objects in a version, or of one object."""
        parts = [f"/apis/{self.group}/{version}"]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Position in the list of objects: all `seen` objects before `continue_token` are rewritten.

    It is valid for one generation of the CRD: edits in between may have changed the storage version
    twice.
    """

    uid: str
    generation: int
    continue_token: str
    seen: int

    def text(self) -> str:
        """Return the value of the annotation."""
        return json.dumps(asdict(self), separators=(",", ":"))


def read_checkpoint(crd: Json, target: MigrationTarget) -> Checkpoint | None:
    """Return the checkpoint in the CRD's annotation, or None without a valid one."""
    text = (crd["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        checkpoint = Checkpoint(**json.loads(text or "{}"))
    except (TypeError, ValueError):
        return None  # none, or edited by hand: starting from the beginning is always correct
    return (
        checkpoint
        if (checkpoint.uid, checkpoint.generation) == (target.uid, target.generation)
        else None
    )
