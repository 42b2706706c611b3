"""Kinds that no CRD of the project serves, or whose CRD drops a field; misspelt groups. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from operator_runner.core.model import BUILT_IN_GROUPS, GVK, Json, Watch
from operator_runner.core.timetable import LAST_FIELD
from operator_runner.kube.discovery import explain_missing
from operator_runner.reconcile.status import GENERATION, GENERATION_PLACES, GENERATION_YAML
from operator_runner.tools.validate.values import listed, mapping

_OPEN = "x-kubernetes-preserve-unknown-fields"


def unserved(watches: Sequence[Watch], objects: Iterable[Json]) -> Iterator[tuple[GVK, str]]:
    """Yield kinds that are not served, each with cause and hint.

    Of groups of which the project has no CRD, only the kinds of watches that run something are
    checked: other CRDs may be in other projects.
    """
    served = set(_served(objects))
    groups = {gvk.group for gvk in served}
    for gvk in dict.fromkeys(_kinds(watches)):
        if gvk.group in groups and gvk not in served:
            reason = explain_missing(gvk, sorted(served))
            yield gvk, f"{gvk} is not served by the CRDs of the project: {reason}"
    for gvk in dict.fromkeys(watch.gvk for watch in watches):
        if gvk.group not in groups and not gvk.is_built_in:
            hint = "add the CRD to config/crd/bases, so that names of its fields are checked"
            yield gvk, f"{gvk} has no CRD in the project; {hint}"


_API_VERSION = re.compile(r"""^[^#\n]*\bapi_?[vV]ersion["']?: *["']?([a-zA-Z][\w.-]*)/(v\d\w*)""")
_GROUPS = frozenset({"apps", "autoscaling", "batch", "extensions", "policy"})
"""Groups of Kubernetes without a dot, which groups of CRDs must have."""
_NEAR, _ONE_LETTER_OFF = 0.75, 0.9
"""Similarity of a group without a dot, which is certainly wrong, and of one with a dot."""


def known_groups(watches: Sequence[Watch], objects: Iterable[Json]) -> frozenset[str]:
    """Return the groups of Kubernetes, of the watches and of the CRDs of the project."""
    kinds = (*_kinds(watches), *_served(objects))
    return _GROUPS | BUILT_IN_GROUPS | {gvk.group for gvk in kinds if gvk.group}


def misspelt_groups(text: str, known: Collection[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield line, message and whether it is an error for each `apiVersion` of a misspelt group.

    A group with a dot may be that of a CRD in another project.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if (found := _API_VERSION.match(line)) is None or found[1] in known:
            continue
        group, version = found.groups()
        is_plain = "." not in group
        cutoff = _NEAR if is_plain else _ONE_LETTER_OFF
        near = [f"{each}/" for each in difflib.get_close_matches(group.lower(), known, 1, cutoff)]
        if near := [""] if group == "core" else near:
            message = f"unknown group in apiVersion {group}/{version}"
            yield number, f"{message}: did you mean {near[0]}{version}?", is_plain


def incomplete(watches: Sequence[Watch], objects: Iterable[Json]) -> Iterator[tuple[GVK, str]]:
    """Yield kinds whose CRD drops a field of the status that the operator writes, with a hint."""
    found = dict(schemas(objects))
    for watch in watches:
        schema = found.get(watch.gvk, {_OPEN: True})
        if watch.schedule is not None and not _keeps(schema, "status", LAST_FIELD):
            yield watch.gvk, _text(watch, f"status.{LAST_FIELD}, which `schedule` needs", _TICKS)
        # A schema without a status says nothing about its fields.
        has_status = "status" in mapping(schema.get("properties"))
        if not (watch.manage_status and has_status):
            continue
        places = [
            each for each in GENERATION_PLACES if not _keeps(schema, *each.split("."), GENERATION)
        ]
        if places:
            what = f"{GENERATION}, without which `kubectl wait` returns before an edit is applied"
            yield watch.gvk, _text(watch, what, f"{GENERATION_YAML} of {' and '.join(places)}")


_TICKS = (
    f"`{LAST_FIELD}: {{type: string, format: date-time}}` to the properties of the status, and "
    "nextScheduleTime as well"
)


def _text(watch: Watch, what: str, hint: str) -> str:
    return f"the CRD of {watch.gvk} has no {what}: add {hint}"


def _keeps(schema: Json, *path: str) -> bool:
    """Return whether the API server keeps the field of this path; `items` are those of a list."""
    for name in path:
        found = schema.get(name) if name == "items" else mapping(schema.get("properties")).get(name)
        if not isinstance(found, dict):
            return bool(schema.get(_OPEN) or schema.get("additionalProperties"))
        schema = found
    return True


def _kinds(watches: Sequence[Watch]) -> Iterator[GVK]:
    for watch in watches:
        yield watch.gvk
        yield from (each.gvk for each in watch.references)
        yield from (each.gvk for each in watch.triggers)
        yield from (each.gvk for each in watch.wake_on)


def _served(objects: Iterable[Json]) -> Iterator[GVK]:
    yield from (gvk for gvk, version in _versions(objects) if version.get("served"))


def schemas(objects: Iterable[Json]) -> Iterator[tuple[GVK, Json]]:
    """Yield the kinds of CRDs, each with its schema; `{}` if it has none."""
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
