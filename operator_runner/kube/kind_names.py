"""Find the kind that a user names, with the spellings of kubectl. Pure.

`wikis`, `wiki`, `Wiki`, a short name, and with group, a prefix of it, or version and group:
`wiki.apps.example.com`, `wiki.apps`, `wikis.v1.apps.example.com`. Case does not matter. If several
groups have the kind, it is that of the first one in the order of the API server, as for kubectl.
Commands with a watches file leave out kinds that the file does not have.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK
from operator_runner.kube.discovery import ApiResource

_CLOSE = 0.7
"""Similarity of names, of which one may be a misspelling of the other."""
_TYPOS = 2
"""Letters by which the lengths of such names differ at most: `spaces` is not `namespaces`."""


@dataclass(frozen=True, slots=True)
class NamedKind:
    """A kind and the lower-case names of its resource."""

    gvk: GVK
    names: frozenset[str]


def of_resources(resources: Iterable[ApiResource]) -> list[NamedKind]:
    """Return the kinds of served resources, with plural, singular, kind and short names."""
    return [
        NamedKind(each.gvk, frozenset({each.gvk.kind.lower(), each.plural, *each.aliases}))
        for each in resources
    ]


def matching_kinds(text: str, kinds: Iterable[NamedKind]) -> list[GVK]:
    """Return the kinds that `text` names; those with a prefix of a group only if no other does."""
    name, _, rest = text.lower().partition(".")
    named = [each.gvk for each in kinds if name in each.names]
    exact = [gvk for gvk in named if rest in {"", gvk.group, f"{gvk.version}.{gvk.group}"}]
    return exact or [gvk for gvk in named if gvk.group.startswith(rest)]


def find_versions(text: str, kinds: Iterable[NamedKind]) -> list[GVK]:
    """Return the kind that `text` names in all its versions; empty if there is none.

    If several groups have it, that is the first one of `kinds`, as for kubectl.
    """
    found = matching_kinds(text, kinds)
    return [gvk for gvk in found if (gvk.group, gvk.kind) == (found[0].group, found[0].kind)]


def find_kind(text: str, kinds: Sequence[NamedKind]) -> GVK:
    """Return the first kind that `text` names. Raises ConfigError with the nearest one."""
    if found := find_versions(text, kinds):
        return found[0]
    name, _, rest = text.lower().partition(".")
    if "," in text:
        raise ConfigError(f"invalid resource type {text!r}: separate several with spaces")
    raise ConfigError(f'the resource type "{text}" is unknown{_hint(name, rest, kinds)}')


def find_watched(
    text: str, served: Sequence[NamedKind], watched: Iterable[GVK], file: str
) -> list[GVK]:
    """Return the kind of a watches file that `text` names, in the versions that the file has.

    If several of its groups have the kind, that is the first one of the API server. Kinds that the
    file does not have are left out. Raises ConfigError.
    """
    kinds = list(dict.fromkeys(watched))
    if found := find_versions(text, [each for each in served if each.gvk in kinds]):
        return [gvk for gvk in kinds if gvk in found]
    known = ", ".join(dict.fromkeys(gvk.kind_and_group.lower() for gvk in kinds))
    kind = find_kind(text, served).kind_and_group.lower()
    raise ConfigError(f"{text} is {kind}, which is not in {file}; it has {known}")


def _hint(name: str, rest: str, kinds: Sequence[NamedKind]) -> str:
    elsewhere = [each.gvk for each in kinds if name in each.names]
    if elsewhere:
        places = ", ".join(dict.fromkeys(_qualified(gvk) for gvk in elsewhere))
        return f": {rest} does not have it; did you mean {places}?"
    known = [n for each in kinds for n in each.names if abs(len(n) - len(name)) <= _TYPOS]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    for each in kinds:
        if nearest and nearest[0] in each.names:
            return f"; did you mean {_qualified(each.gvk)}? If not, install its CRD"
    return "; install its CRD, or correct the name"


def _qualified(gvk: GVK) -> str:
    parts = (gvk.kind.lower(), gvk.version, gvk.group)
    return ".".join(parts) if gvk.group else gvk.kind.lower()
