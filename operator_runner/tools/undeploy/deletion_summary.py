"""Format lists of the objects that an undeployment deletes and keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from operator_runner.core.model import ObjectRef

_MAX_LINES = 20
"""Maximum lines of a list; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A custom resource with its finalizers.

    `pods` and `claims` are the Pods and PersistentVolumeClaims that it owns, also indirectly.
    """

    ref: ObjectRef
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    pods: tuple[ObjectRef, ...] = ()
    claims: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """An installed CRD and the resources of its kind."""

    name: str
    """PLURAL.GROUP"""
    resources: tuple[Resource, ...]
    converted: tuple[str, ...] = ()
    """Served versions that need the operator's conversion webhook."""


def deletion_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the resources that are deleted with the CRDs, and their totals."""
    for definition in definitions:
        if not definition.resources:
            yield f"CRD {definition.name} will be deleted; it has no resources."
            continue
        yield f"CRD {definition.name} will be deleted with these resources and their dependents:"
        yield from _shown([_line(resource) for resource in definition.resources])
    resources = [one for definition in definitions for one in definition.resources]
    if resources:
        namespaces = {one.ref.namespace for one in resources}
        pods = sum(len(one.pods) for one in resources)
        yield (
            f"Total: {_count(len(resources), 'resource')} in"
            f" {_count(len(namespaces), 'namespace')}, {_count(pods, 'Pod')}."
        )


def remaining_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield what is kept, and which of it needs an operator."""
    for definition in definitions:
        pods = sum(len(one.pods) for one in definition.resources)
        if definition.resources:
            yield (
                f"Kept: CRD {definition.name}, {_count(len(definition.resources), 'resource')} and"
                f" {_count(pods, 'Pod')}."
            )
        held = [one for one in definition.resources if one.finalizers]
        if held:
            yield (
                "These resources have a finalizer that needs the operator. Deploy it again to"
                " delete them, or remove their finalizers to skip the cleanup:"
            )
            yield from _shown([_remove_finalizers(definition.name, one) for one in held])
        if definition.converted and definition.resources:
            yield (
                f"Requests for {', '.join(definition.converted)} of {definition.name} fail until"
                " an operator serves the conversion webhook again."
            )


def finalizer_commands(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the commands that remove the finalizers of remaining resources."""
    for definition in definitions:
        held = [one for one in definition.resources if one.finalizers]
        yield from _shown([_remove_finalizers(definition.name, one) for one in held])


def owned_objects(definitions: Sequence[Definition]) -> list[ObjectRef]:
    """Return the Pods and PersistentVolumeClaims that are deleted with the resources."""
    resources = [one for definition in definitions for one in definition.resources]
    return [ref for one in resources for ref in (*one.pods, *one.claims)]


def delete_commands(refs: Sequence[ObjectRef]) -> Iterator[str]:
    """Yield the commands that delete these objects."""
    yield from _shown([_delete(ref) for ref in refs])


def _line(resource: Resource) -> str:
    parts = [_count(len(resource.pods), "Pod"), *(str(claim) for claim in resource.claims)]
    return f"  {resource.ref}: {', '.join(parts)}"


def _remove_finalizers(crd: str, resource: Resource) -> str:
    where = f" --namespace={resource.ref.namespace}" if resource.ref.namespace else ""
    patch = '{"metadata":{"finalizers":null}}'
    now = "  # deletion pending" if resource.deleting else ""
    return f"  kubectl patch {crd} {resource.ref.name}{where} --type=merge --patch='{patch}'{now}"


def _delete(ref: ObjectRef) -> str:
    return f"  kubectl delete {ref.gvk.kind.lower()} {ref.name} --namespace={ref.namespace}"


def _shown(lines: list[str]) -> Iterator[str]:
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"  and {len(lines) - _MAX_LINES} more"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
