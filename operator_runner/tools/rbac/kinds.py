"""Map kinds to resources without a cluster: by the project's CRDs, or by Kubernetes' defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json

_CLUSTER_SCOPED = frozenset(
    {
        "APIService",
        "CSIDriver",
        "CSINode",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ComponentStatus",
        "CustomResourceDefinition",
        "FlowSchema",
        "IngressClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "RuntimeClass",
        "StorageClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
    }
)
"""Cluster-scoped kinds that are built into Kubernetes; the other built-in kinds are namespaced."""


@dataclass(frozen=True, slots=True)
class PluralName:
    """The plural of a kind in paths and rules, and whether it is namespaced."""

    name: str
    namespaced: bool


class KindTable:
    """Resources of kinds that CRDs define, and of built-in kinds."""

    def __init__(self, documents: Iterable[Json]) -> None:
        """Read the CRDs among manifests."""
        self._known: Mapping[tuple[str, str], PluralName] = dict(_defined(documents))

    def plural(self, gvk: GVK) -> PluralName:
        """Return the resource of a kind. Raises ConfigError if its CRD is missing."""
        known = self._known.get((gvk.group, gvk.kind))
        if known is not None:
            return known
        if "." in gvk.group and not gvk.group.endswith(".k8s.io"):
            raise ConfigError(
                f"{gvk.kind} of {gvk.api_version}: no CRD found, so its plural is unknown; name the"
                " CRD's file with --crds"
            )
        return PluralName(_guess(gvk.kind), gvk.kind not in _CLUSTER_SCOPED)


def _defined(documents: Iterable[Json]) -> Iterable[tuple[tuple[str, str], PluralName]]:
    for body in documents:
        spec: Any = body.get("spec") or {}
        # A patch of a CRD, which kustomize merges into it, has no names.
        if body.get("kind") == "CustomResourceDefinition" and "names" in spec:
            plural = PluralName(spec["names"]["plural"], spec["scope"] == "Namespaced")
            yield (spec["group"], spec["names"]["kind"]), plural


def _guess(kind: str) -> str:
    """Return the plural by the rules of apimachinery's UnsafeGuessKindToResource."""
    singular = kind.lower()
    if singular == "endpoints":
        return singular
    if singular.endswith("s"):
        return singular + "es"
    return (
        singular[:-1] + "ies"
        if singular.endswith("y") and singular[-2:] not in {"ay", "ey", "oy"}
        else singular + "s"
    )
