"""Which resource a kind is, without a cluster: from the project's CRDs, or by Kubernetes' rules."""

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
"""Of the kinds that Kubernetes brings along; all others are in a namespace."""


@dataclass(frozen=True, slots=True)
class Plural:
    """The plural of a kind as paths and rules have it, and whether it lives in namespaces."""

    name: str
    namespaced: bool


class KindTable:
    """Knows the kinds of CRDs, and those of Kubernetes itself."""

    def __init__(self, documents: Iterable[Json]) -> None:
        """Take the CRDs among some manifests."""
        self._known: Mapping[tuple[str, str], Plural] = dict(_defined(documents))

    def plural(self, gvk: GVK) -> Plural:
        """Return the resource of a kind; raises ConfigError for one that no CRD is there for."""
        known = self._known.get((gvk.group, gvk.kind))
        if known is not None:
            return known
        if "." in gvk.group and not gvk.group.endswith(".k8s.io"):
            raise ConfigError(
                f"{gvk.kind} of {gvk.api_version}: its CRD is not among the project's, so its"
                " plural is not known; name the CRD's file with --crds"
            )
        return Plural(_guess(gvk.kind), gvk.kind not in _CLUSTER_SCOPED)


def _defined(documents: Iterable[Json]) -> Iterable[tuple[tuple[str, str], Plural]]:
    for body in documents:
        spec: Any = body.get("spec") or {}
        # A patch of a CRD, which kustomize merges into it, has no names.
        if body.get("kind") == "CustomResourceDefinition" and "names" in spec:
            plural = Plural(spec["names"]["plural"], spec["scope"] == "Namespaced")
            yield (spec["group"], spec["names"]["kind"]), plural


def _guess(kind: str) -> str:
    """Return the plural as Kubernetes forms it where nobody has named one."""
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
