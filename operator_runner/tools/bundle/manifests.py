"""Look up objects, fields and permissions in the rendered manifests of a project. Pure."""

from __future__ import annotations

import copy
from collections import defaultdict
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


Id = tuple[str, str]
"""Kind and name of an object."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """`clusterPermissions` and `permissions` of a ClusterServiceVersion.

    `replaced` are the objects that the bundle omits: OLM creates ServiceAccounts, roles and
    bindings from the permissions.
    """

    cluster: list[Json]
    namespaced: list[Json]
    replaced: frozenset[Id]


def permissions(manifests: Manifests) -> Permissions:
    """Return the permissions of the ServiceAccounts of all Deployments.

    A binding with further subjects is kept, and so does its role. Raises ConfigError if a
    bound role is not among the manifests, because its rules cannot be copied.
    """
    accounts = {account_of(deployment) for deployment in manifests.of("Deployment")}
    roles = {(item["kind"], name_of(item)): item for kind in ("ClusterRole", "Role")
             for item in manifests.of(kind)}  # fmt: skip
    replaced: set[Id] = {("ServiceAccount", account) for account in accounts}
    kept: set[Id] = set()
    rules: dict[str, dict[str, list[Json]]] = {
        kind: defaultdict(list) for kind in ("ClusterRoleBinding", "RoleBinding")
    }
    for binding in (*manifests.of("ClusterRoleBinding"), *manifests.of("RoleBinding")):
        ref = binding.get("roleRef", {})
        role = (str(ref.get("kind")), str(ref.get("name")))
        ours = set(_accounts(binding)) & accounts
        if not ours:
            kept.add(role)
            continue
        if role not in roles:
            raise manifests.error_at(
                binding,
                "roleRef.name",
                f"{role[0]} {role[1]} is not among the manifests, so its rules cannot be copied;"
                " add a role with the rules that the operator needs",
            )
        for account in sorted(ours):
            rules[binding["kind"]][account] += roles[role].get("rules") or []
        if len(binding.get("subjects") or ()) > len(ours):
            kept |= {role, (binding["kind"], name_of(binding))}
        replaced |= {role, (binding["kind"], name_of(binding))}
    return Permissions(
        _by_account(rules["ClusterRoleBinding"]), _by_account(rules["RoleBinding"]),
        frozenset(replaced - kept),
    )  # fmt: skip


def account_of(deployment: Json) -> str:
    """Return the ServiceAccount of a Deployment's Pods."""
    return str(pod_of(deployment).get("serviceAccountName") or "default")


def _accounts(binding: Json) -> Iterator[str]:
    for subject in binding.get("subjects") or ():
        if subject.get("kind") == "ServiceAccount":
            yield str(nested(subject, "name"))


def _by_account(rules: dict[str, list[Json]]) -> list[Json]:
    return [
        {"serviceAccountName": account, "rules": rules[account]}
        for account in sorted(rules)
        if rules[account]
    ]
