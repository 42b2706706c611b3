"""Kinds of watches.yaml that no CRD of the project serves, or whose CRD drops a field. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from operator_runner.core.model import GVK, Json, Watch
from operator_runner.core.timetable import LAST_FIELD
from operator_runner.kube.missing_kinds import explain_missing
from operator_runner.tools.validate.values import listed, mapping

_OPEN = "x-kubernetes-preserve-unknown-fields"


def unserved(watches: Sequence[Watch], objects: Iterable[Json]) -> Iterator[tuple[GVK, str]]:
    """Yield kinds that are not served, each with cause and hint.

    Only groups of which the project has a CRD are checked: other CRDs may be in other projects.
    """
    served = set(_served(objects))
    groups = {gvk.group for gvk in served}
    for gvk in dict.fromkeys(_kinds(watches)):
        if gvk.group in groups and gvk not in served:
            reason = explain_missing(gvk, sorted(served))
            yield gvk, f"{gvk} is not served by the CRDs of the project: {reason}"


def without_last_tick(
    watches: Sequence[Watch], objects: Iterable[Json]
) -> Iterator[tuple[GVK, str]]:
    """Yield kinds with a schedule whose CRD drops the time of the last tick, with a hint."""
    schemas = dict(_schemas(objects))
    for watch in watches:
        if watch.schedule is not None and _drops_last_tick(schemas.get(watch.gvk) or {_OPEN: True}):
            message = (
                f"the CRD of {watch.gvk} has no status.{LAST_FIELD}, which `schedule` needs: "
                f"add `{LAST_FIELD}: {{type: string, format: date-time}}` to the properties of "
                "the status, and nextScheduleTime as well"
            )
            yield watch.gvk, message


def _drops_last_tick(schema: Json) -> bool:
    status = mapping(schema.get("properties")).get("status")
    if not isinstance(status, dict):
        return not schema.get(_OPEN)
    return not (
        status.get(_OPEN)
        or status.get("additionalProperties")
        or LAST_FIELD in mapping(status.get("properties"))
    )


def _kinds(watches: Sequence[Watch]) -> Iterator[GVK]:
    for watch in watches:
        yield watch.gvk
        yield from (each.gvk for each in watch.references)
        yield from (each.gvk for each in watch.triggers)
        yield from (each.gvk for each in watch.wake_on)


def _served(objects: Iterable[Json]) -> Iterator[GVK]:
    yield from (gvk for gvk, version in _versions(objects) if version.get("served"))


def _schemas(objects: Iterable[Json]) -> Iterator[tuple[GVK, Json]]:
    for gvk, version in _versions(objects):
        yield gvk, mapping(mapping(version.get("schema")).get("openAPIV3Schema"))


def _versions(objects: Iterable[Json]) -> Iterator[tuple[GVK, Json]]:
    """Yield the kinds of CRDs, each with the entry of its version."""
    for body in objects:
        if body.get("kind") != "CustomResourceDefinition":
            continue
        spec = mapping(body.get("spec"))
        kind = mapping(spec.get("names")).get("kind")
        for version in map(mapping, listed(spec.get("versions"))):
            yield GVK(str(spec.get("group")), str(version.get("name")), str(kind)), version
