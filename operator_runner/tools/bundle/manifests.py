"""Look up objects and fields in the rendered manifests of a project. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json

MANAGER = "manager"
"""Name of the operator's container in projects of kubebuilder and operator-sdk."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """All objects of a project; `source` is their folder, for messages."""

    objects: tuple[Json, ...]
    source: str

    def of(self, kind: str) -> tuple[Json, ...]:
        """Return the objects of a kind, sorted by name."""
        found = (item for item in self.objects if item.get("kind") == kind)
        return tuple(sorted(found, key=name_of))

    def one(self, kind: str, hint: str) -> Json:
        """Return the only object of a kind. Raises ConfigError that ends with `hint`."""
        found = self.of(kind)
        if len(found) != 1:
            names = ", ".join(name_of(item) for item in found) or "none"
            raise ConfigError(f"{self.source}: expected one {kind}, found: {names}; {hint}")
        return found[0]

    def error_at(self, obj: Json, field: str, text: str) -> ConfigError:
        """Return a ConfigError that names the object and the field."""
        return ConfigError(f"{self.source}: {obj.get('kind')} {name_of(obj)}: {field}: {text}")

    def with_image(self, image: str) -> Manifests:
        """Return a copy with `image` in the operator's container. Raises ConfigError."""
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
                f"{self.source}: --image needs a Deployment with a container named {MANAGER};"
                " found none"
            )
        for container in managers:
            container["image"] = image
        return replace(self, objects=objects)


def name_of(obj: Json) -> str:
    """Return the name of an object, empty if it is missing."""
    return str(obj.get("metadata", {}).get("name", ""))


def nested(obj: Any, *path: str) -> Any:
    """Return the value at a path in nested mappings, or None if it is missing."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def pod_of(deployment: Json) -> Json:
    """Return the Pod specification of a Deployment."""
    return nested(deployment, "spec", "template", "spec") or {}


def containers(deployment: Json) -> Iterator[Json]:
    """Yield the containers of a Deployment, init containers first."""
    pod = pod_of(deployment)
    yield from pod.get("initContainers") or ()
    yield from pod.get("containers") or ()


def crd_versions(manifests: Manifests) -> Iterator[tuple[Json, Json]]:
    """Yield each CRD with each of its served versions."""
    for crd in manifests.of("CustomResourceDefinition"):
        for version in nested(crd, "spec", "versions") or ():
            if version.get("served"):
                yield crd, version


def serves(crd: Json, group: str, kind: str) -> bool:
    """Return whether a CRD defines a kind."""
    return bool(
        nested(crd, "spec", "group") == group and nested(crd, "spec", "names", "kind") == kind
    )


def without_cluster_metadata(obj: Json) -> Json:
    """Return an object without namespace and creationTimestamp, which the cluster sets."""
    metadata = {k: v for k, v in obj.get("metadata", {}).items()
                if k not in {"namespace", "creationTimestamp"}}  # fmt: skip
    return {**obj, "metadata": metadata}
