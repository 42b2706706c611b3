"""The objects of a project's manifests, and where in them things are. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json

MANAGER = "manager"
"""The container that the operator runs in, in every scaffold of the field."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """All objects of a project; `source` is the folder that they come from, for messages."""

    objects: tuple[Json, ...]
    source: str

    def of(self, kind: str) -> tuple[Json, ...]:
        """Return the objects of a kind by name."""
        found = (each for each in self.objects if each.get("kind") == kind)
        return tuple(sorted(found, key=name_of))

    def one(self, kind: str, cure: str) -> Json:
        """Return the only object of a kind."""
        found = self.of(kind)
        if len(found) != 1:
            names = ", ".join(name_of(each) for each in found) or "none"
            raise ConfigError(f"{self.source}: one {kind} is needed, found: {names}; {cure}")
        return found[0]

    def problem(self, thing: Json, field: str, text: str) -> ConfigError:
        """Return an error that names the object and the field."""
        return ConfigError(f"{self.source}: {thing.get('kind')} {name_of(thing)}: {field}: {text}")

    def with_image(self, image: str) -> Rendered:
        """Return the same objects with another image in the operator's container."""
        objects = copy.deepcopy(self.objects)
        managers = [
            container
            for deployment in objects
            if deployment.get("kind") == "Deployment"
            for container in containers(deployment)
            if container.get("name") == MANAGER
        ]
        if not managers:
            raise ConfigError(
                f"{self.source}: no Deployment has a container named {MANAGER}, so there is none"
                " to put the image into"
            )
        for container in managers:
            container["image"] = image
        return replace(self, objects=objects)


def name_of(thing: Json) -> str:
    """Return the name of an object, empty if it has none."""
    return str(thing.get("metadata", {}).get("name", ""))


def dig(thing: Any, *path: str) -> Any:
    """Return what is at a path in nested maps, None if nothing is."""
    for key in path:
        thing = thing.get(key) if isinstance(thing, dict) else None
    return thing


def pod_of(deployment: Json) -> Json:
    """Return the Pod specification of a Deployment."""
    return dig(deployment, "spec", "template", "spec") or {}


def containers(deployment: Json) -> Iterator[Json]:
    """Yield the containers of a Deployment, those that initialise it first."""
    pod = pod_of(deployment)
    yield from pod.get("initContainers") or ()
    yield from pod.get("containers") or ()


def crd_versions(rendered: Rendered) -> Iterator[tuple[Json, Json]]:
    """Yield each CRD with each of its versions that is served."""
    for crd in rendered.of("CustomResourceDefinition"):
        for version in dig(crd, "spec", "versions") or ():
            if version.get("served"):
                yield crd, version


def serves(crd: Json, group: str, kind: str) -> bool:
    """Tell whether a CRD defines a kind."""
    return bool(dig(crd, "spec", "group") == group and dig(crd, "spec", "names", "kind") == kind)


def bare(thing: Json) -> Json:
    """Return an object without what the cluster decides: namespace and time of creation."""
    metadata = {k: v for k, v in thing.get("metadata", {}).items()
                if k not in {"namespace", "creationTimestamp"}}  # fmt: skip
    return {**thing, "metadata": metadata}
