"""Explain why a kind is not served, with the nearest ones that are. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from operator_runner.core.model import GVK

_OR_INSTALL = " If not, install its CRD with `kubectl apply -f`"


def explain_missing(gvk: GVK, served: Collection[GVK]) -> str:
    """Return cause and hint for a kind that is not among the `served` ones.

    Cases, in this order: another version or spelling of the kind in its group, the kind in a
    group of a similar name, a similar kind in its group.
    """
    same_group = [each for each in served if each.group == gvk.group]
    if same_kind := _of_kind(gvk.kind, same_group):
        (kind, versions), *_ = same_kind.items()
        if kind == gvk.kind:
            return f"it is served in {_listed(versions)}; correct `version`, or add it to the CRD"
        return _did_you_mean(gvk.group, kind, versions)
    groups = {each.group: None for each in served if each.kind.lower() == gvk.kind.lower()}
    if group := _nearest(gvk.group, groups):
        found = [each for each in served if each.group == group]
        (kind, versions), *_ = _of_kind(gvk.kind, found).items()
        return _did_you_mean(group, kind, versions) + _OR_INSTALL
    if near := _nearest(gvk.kind, {each.kind: None for each in same_group}):
        return _did_you_mean(gvk.group, near, _of_kind(near, same_group)[near]) + _OR_INSTALL
    return "its CRD is missing; install it with `kubectl apply -f`"


def _of_kind(kind: str, served: Collection[GVK]) -> dict[str, list[str]]:
    """Return the spellings of a kind, which may differ in case, with their versions."""
    found: dict[str, list[str]] = {}
    for each in served:
        if each.kind.lower() == kind.lower():
            found.setdefault(each.kind, []).append(each.version)
    return {kind: found.pop(kind), **found} if kind in found else found


def _did_you_mean(group: str, kind: str, versions: list[str]) -> str:
    in_group = f" in group {group}" if group else ""
    return f"did you mean {kind}{in_group}, served in {_listed(versions)}?"


def _nearest(name: str, names: Collection[str]) -> str | None:
    """Return the most similar name, ignoring case."""
    lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[near[0]] if near else None


def _listed(versions: list[str]) -> str:
    *first, last = versions
    return f"{', '.join(first)} and {last}" if first else last
