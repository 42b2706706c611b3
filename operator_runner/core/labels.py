"""Match labels by the rules of Kubernetes, write and index selectors. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from operator_runner.core.model import (
    ALL_NAMESPACES,
    GVK,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectRef,
    Selection,
)

_SPECIAL = re.compile(r"[\\,=]")
"""Characters of a value that are escaped in a field selector."""


def match_labels(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether labels match; an empty selector matches all, NotIn also absent keys."""
    wanted = selector.match_labels.items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _fits(each.key, each.operator, each.values, labels) for each in selector.match_expressions
    )


def selector_text(selector: LabelSelector) -> str:
    """Write a selector as the parameter `labelSelector` of a request; an empty one is empty."""
    labels = [f"{key}={value}" for key, value in selector.match_labels.items()]
    return ",".join([*labels, *map(_requirement_text, selector.match_expressions)])


def field_selector(field: str, value: str) -> str:
    """Write the parameter `fieldSelector` for objects with this value, which may have any text."""
    escaped = _SPECIAL.sub(r"\\\g<0>", value)
    return f"{field}={escaped}"


def _requirement_text(requirement: LabelSelectorRequirement) -> str:
    values = ",".join(requirement.values)
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({values})"


class SelectionIndex:
    """Finds the resources that select an object, without evaluating each selector.

    A selection is filed under one label that its objects must have, if it requires any. Users
    write selectors, with any number of values: the time to add one is linear in it.
    """

    def __init__(self) -> None:
        """Begin without selections."""
        self._entries: dict[Selection, _IndexedSelection] = {}
        self._filed: defaultdict[_Place, set[_IndexedSelection]] = defaultdict(set)

    def add(self, selection: Selection, ref: ObjectRef) -> None:
        """Add a selection of a resource."""
        entry = self._entries.get(selection)
        if entry is None:
            entry = self._entries[selection] = _IndexedSelection(selection)
            for place in _places(selection):
                self._filed[place].add(entry)
        entry.refs.add(ref)

    def discard(self, selection: Selection, ref: ObjectRef) -> None:
        """Remove a selection of a resource, if it was added."""
        entry = self._entries.get(selection)
        if entry is None:
            return
        entry.refs.discard(ref)
        if entry.refs:
            return
        del self._entries[selection]
        for place in set(_places(selection)):
            self._filed[place].discard(entry)
            if not self._filed[place]:
                del self._filed[place]

    def selecting(self, gvk: GVK, namespace: str, labels: Mapping[str, str]) -> set[ObjectRef]:
        """Return the resources that select an object of this kind, namespace and labels."""
        found: set[ObjectRef] = set()
        for where in (namespace, ALL_NAMESPACES):
            for label in (None, *labels.items()):
                for entry in self._filed.get((gvk, where, label), ()):
                    if entry.matches(labels):
                        found |= entry.refs
        return found


_Place = tuple[GVK, str, tuple[str, str] | None]


class _IndexedSelection:
    """A selection in the index, compared by identity, and the resources that it belongs to.

    The time to match an object grows with its labels, not with the requirements.
    """

    def __init__(self, selection: Selection) -> None:
        """Begin without resources."""
        self.refs: set[ObjectRef] = set()
        self._required: set[str] = set()
        self._values: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        """Values by operator, by key: of requirements that an object with this label may violate.
        Those with the same key and operator are one."""
        for each in selection.requirements:
            if each.operator in {"In", "Exists"}:
                self._required.add(each.key)
            if each.operator != "Exists":
                values, of_key = frozenset(each.values), self._values[each.key]
                before = of_key.get(each.operator, values)
                is_in = each.operator == "In"
                of_key[each.operator] = before & values if is_in else before | values

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return self._required <= labels.keys() and all(
            _fits(key, operator, values, labels)
            for key in self._values.keys() & labels.keys()
            for operator, values in self._values[key].items()
        )


def _places(selection: Selection) -> Iterator[_Place]:
    first = next((each for each in selection.requirements if each.operator == "In"), None)
    for label in [(first.key, value) for value in first.values] if first else [None]:
        yield selection.gvk, selection.namespace, label


def _fits(key: str, operator: str, values: Collection[str], labels: Mapping[str, str]) -> bool:
    present = key in labels
    listed = labels.get(key) in values
    match operator:
        case "In":
            return present and listed
        case "NotIn":
            return not (present and listed)
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case _:
            raise AssertionError(f"{operator!r} was accepted by the reader of selectors")
