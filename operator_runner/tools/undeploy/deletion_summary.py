"""What there is to lose, and what stays behind, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from operator_runner.core.model import ObjectRef

_SHOWN = 20
"""Lines of a list; more are counted."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A custom resource, what hangs on it, and whether its deletion waits for somebody.

    `pods` and `claims` are the Pods and PersistentVolumeClaims that it owns, directly or not.
    """

    ref: ObjectRef
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    pods: tuple[ObjectRef, ...] = ()
    claims: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A CRD that is installed, and the resources of its kind."""

    name: str
    """PLURAL.GROUP"""
    resources: tuple[Resource, ...]
    converted: tuple[str, ...] = ()
    """Served versions that only the operator's conversion webhook can make."""


def losses(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield what is lost with the CRDs, resource by resource, and in all."""
    for definition in definitions:
        if not definition.resources:
            yield f"The CRD {definition.name} goes; there are no resources of its kind."
            continue
        yield f"With the CRD {definition.name} these resources go, and all that they own:"
        yield from _shown([_line(resource) for resource in definition.resources])
    resources = [one for definition in definitions for one in definition.resources]
    if resources:
        namespaces = {one.ref.namespace for one in resources}
        pods = sum(len(one.pods) for one in resources)
        yield (
            f"In all: {_count(len(resources), 'resource')} in"
            f" {_count(len(namespaces), 'namespace')}, {_count(pods, 'Pod')}."
        )


def leftovers(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield what stays without the operator, and what of it does not work without one."""
    for definition in definitions:
        pods = sum(len(one.pods) for one in definition.resources)
        if definition.resources:
            yield (
                f"The CRD {definition.name}, {_count(len(definition.resources), 'resource')} and"
                f" {_count(pods, 'Pod')} of theirs stay as they are."
            )
        held = [one for one in definition.resources if one.finalizers]
        if held:
            yield (
                "The deletion of these waits for the finalizer of an operator. Deploy it again to"
                " delete them, or let go of them without a clean-up:"
            )
            yield from _shown([_let_go(definition.name, one) for one in held])
        if definition.converted and definition.resources:
            yield (
                f"Requests for {', '.join(definition.converted)} of {definition.name} fail until"
                " an operator serves the conversion webhook again."
            )


def stuck(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield how to let go of what has not gone in time."""
    for definition in definitions:
        held = [one for one in definition.resources if one.finalizers]
        yield from _shown([_let_go(definition.name, one) for one in held])


def owned(definitions: Sequence[Definition]) -> list[ObjectRef]:
    """Return the Pods and PersistentVolumeClaims that go with the resources."""
    resources = [one for definition in definitions for one in definition.resources]
    return [ref for one in resources for ref in (*one.pods, *one.claims)]


def remaining(refs: Sequence[ObjectRef]) -> Iterator[str]:
    """Yield how to delete what the garbage collector has not."""
    yield from _shown([_delete(ref) for ref in refs])


def _line(resource: Resource) -> str:
    parts = [_count(len(resource.pods), "Pod"), *(str(claim) for claim in resource.claims)]
    return f"  {resource.ref}: {', '.join(parts)}"


def _let_go(crd: str, resource: Resource) -> str:
    where = f" --namespace={resource.ref.namespace}" if resource.ref.namespace else ""
    patch = '{"metadata":{"finalizers":null}}'
    now = "  # is being deleted now" if resource.deleting else ""
    return f"  kubectl patch {crd} {resource.ref.name}{where} --type=merge --patch='{patch}'{now}"


def _delete(ref: ObjectRef) -> str:
    return f"  kubectl delete {ref.gvk.kind.lower()} {ref.name} --namespace={ref.namespace}"


def _shown(lines: list[str]) -> Iterator[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN} more"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
