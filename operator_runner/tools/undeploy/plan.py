"""Sort the objects of an installation by deletion order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operator_runner.core.model import GVK, ObjectRef

_CRD, _NAMESPACE, _WORKLOAD = "CustomResourceDefinition", "Namespace", "Deployment"
_SECRET = GVK("", "v1", "Secret")


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The objects of an installation, grouped by deletion order."""

    crds: tuple[ObjectRef, ...]
    """Kept by default: deleting a CRD deletes all resources of its kind."""
    workloads: tuple[ObjectRef, ...]
    """Deleted first. The rest follows when their Pods are gone: runs need RBAC until they end."""
    rest: tuple[ObjectRef, ...]
    made: tuple[ObjectRef, ...]
    """Secrets that the operator may have created: webhook certificates, by their Services."""
    namespaces: tuple[ObjectRef, ...]
    """Deleted last, and only if they contain nothing else."""


def plan_for(objects: Sequence[ObjectRef]) -> RemovalPlan:
    """Return the plan for objects in creation order; the rest is deleted in reverse order."""
    special = {_CRD, _NAMESPACE, _WORKLOAD}
    return RemovalPlan(
        crds=_of_kind(objects, _CRD),
        workloads=_of_kind(objects, _WORKLOAD),
        rest=tuple(ref for ref in reversed(objects) if ref.gvk.kind not in special),
        made=tuple(
            ObjectRef(_SECRET, ref.namespace, f"{ref.name}-certificate")
            for ref in _of_kind(objects, "Service")
        ),
        namespaces=_of_kind(objects, _NAMESPACE),
    )


def _of_kind(objects: Sequence[ObjectRef], kind: str) -> tuple[ObjectRef, ...]:
    return tuple(ref for ref in objects if ref.gvk.kind == kind)
