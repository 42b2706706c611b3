"""Kinds of watches.yaml that no CRD of the project serves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from operator_runner.core.model import GVK, Json, Watch
from operator_runner.kube.missing_kinds import explain_missing


def unserved(watches: Sequence[Watch], objects: Iterable[Json]) -> Iterator[tuple[GVK, str]]:
    """Yield kinds that are not served, each with cause and cure.

    Only groups of which the project has a CRD are checked: others may have theirs elsewhere.
    """
    served = set(_served(objects))
    groups = {gvk.group for gvk in served}
    for gvk in dict.fromkeys(_kinds(watches)):
        if gvk.group in groups and gvk not in served:
            reason = explain_missing(gvk, sorted(served))
            yield gvk, f"{gvk} is not served by the CRDs of the project: {reason}"


def _kinds(watches: Sequence[Watch]) -> Iterator[GVK]:
    for watch in watches:
        yield watch.gvk
        yield from (each.gvk for each in watch.references)
        yield from (each.gvk for each in watch.triggers)
        yield from (each.gvk for each in watch.wake_on)


def _served(objects: Iterable[Json]) -> Iterator[GVK]:
    for body in objects:
        if body.get("kind") != "CustomResourceDefinition":
            continue
        spec = body.get("spec") or {}
        kind = (spec.get("names") or {}).get("kind")
        for version in spec.get("versions") or ():
            if version.get("served"):
                yield GVK(str(spec.get("group")), str(version.get("name")), str(kind))
