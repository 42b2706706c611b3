"""What a CRD asks of a migration, and the place where an interrupted one goes on. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import ANNOTATION_DOMAIN, Json

ANNOTATION = f"{ANNOTATION_DOMAIN}/storage-migration"
"""Of the CRD: holds the place of a migration that is under way or was interrupted."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CRD as a migration sees it. `generation` moves whenever its spec is edited."""

    name: str
    uid: str
    generation: int
    group: str
    plural: str
    storage: str
    """The version that objects are written in."""
    stored: tuple[str, ...]
    """The versions that some object may still be stored in."""
    served: tuple[str, ...]

    @classmethod
    def of(cls, crd: Json) -> Target:
        """Read a CRD. Raises ConfigError where its storage version cannot be written."""
        metadata, spec = crd["metadata"], crd["spec"]
        storage = next(v["name"] for v in spec["versions"] if v["storage"])
        served = tuple(v["name"] for v in spec["versions"] if v["served"])
        if storage not in served:
            raise ConfigError(
                f"{metadata['name']}: its storage version {storage} is not served, so nothing can "
                f"be written in it; set `served: true` for {storage} in the CRD"
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
        """Whether every object is known to be stored in the storage version."""
        return self.stored == (self.storage,)

    @property
    def readable(self) -> tuple[str, ...]:
        """The versions to try for a list, in this order.

        One object that cannot be converted spoils a list in the storage version; in the version
        that it is stored in it needs no conversion.
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
class Place:
    """Up to where all objects are rewritten: `following` continues the list, `seen` were before.

    It holds for one state of the CRD: an edit in between may have changed the storage version
    there and back.
    """

    uid: str
    generation: int
    following: str
    seen: int

    def text(self) -> str:
        """Return it as it stands in the annotation."""
        return json.dumps(asdict(self), separators=(",", ":"))


def place_of(crd: Json, target: Target) -> Place | None:
    """Return the place that the CRD's annotation tells; None without one that still holds."""
    text = (crd["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        place = Place(**json.loads(text or "{}"))
    except (TypeError, ValueError):
        return None  # no place, or somebody has edited it: beginning anew is always right
    return place if (place.uid, place.generation) == (target.uid, target.generation) else None
