"""What of some manifests is deleted, in which order, and what stays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operator_runner.core.model import GVK, ObjectRef

_CRD, _NAMESPACE, _WORKLOAD = "CustomResourceDefinition", "Namespace", "Deployment"
_SECRET = GVK("", "v1", "Secret")


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of an installation, by what becomes of them."""

    crds: tuple[ObjectRef, ...]
    """Stay, unless they are asked for: with them go all resources of their kinds."""
    workloads: tuple[ObjectRef, ...]
    """Go first, and the rest only when their Pods are gone: a run may need its rights to end."""
    rest: tuple[ObjectRef, ...]
    made: tuple[ObjectRef, ...]
    """What the operator itself may have made beside them: its certificates, by their Services."""
    namespaces: tuple[ObjectRef, ...]
    """Go last, and only if nothing else is in them."""


def plan_for(objects: Sequence[ObjectRef]) -> Plan:
    """Sort the objects of an installation; the rest goes in the opposite order of its making."""
    special = {_CRD, _NAMESPACE, _WORKLOAD}
    return Plan(
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
