"""Match labels by the rules of Kubernetes, and index selectors. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from operator_runner.core.model import (
    ALL_NAMESPACES,
    GVK,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectRef,
    Selection,
)


def match_labels(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether labels match; an empty selector matches all, NotIn also absent keys."""
    wanted = selector.match_labels.items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _fits(requirement, labels) for requirement in selector.match_expressions
    )


def selector_text(selector: LabelSelector) -> str:
    """Write a selector as the parameter `labelSelector` of a request; an empty one is empty."""
    labels = [f"{key}={value}" for key, value in selector.match_labels.items()]
    return ",".join([*labels, *map(_requirement_text, selector.match_expressions)])


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
    """Finds the resources that select an object, without a look at each selector.

    A selection is filed under one label that its objects must have, if it requires any.
    """

    def __init__(self) -> None:
        """Begin without selections."""
        self._filed: defaultdict[_Place, dict[Selection, set[ObjectRef]]] = defaultdict(dict)

    def add(self, selection: Selection, ref: ObjectRef) -> None:
        """Add a selection of a resource."""
        for place in _places(selection):
            self._filed[place].setdefault(selection, set()).add(ref)

    def discard(self, selection: Selection, ref: ObjectRef) -> None:
        """Remove a selection of a resource, if it was added."""
        for place in _places(selection):
            refs = self._filed[place].get(selection, set())
            refs.discard(ref)
            if not refs:
                self._filed[place].pop(selection, None)
            if not self._filed[place]:
                del self._filed[place]

    def selecting(self, gvk: GVK, namespace: str, labels: Mapping[str, str]) -> set[ObjectRef]:
        """Return the resources that select an object of this kind, namespace and labels."""
        found: set[ObjectRef] = set()
        for where in (namespace, ALL_NAMESPACES):
            for label in (None, *labels.items()):
                for selection, refs in self._filed.get((gvk, where, label), {}).items():
                    if match_labels(LabelSelector({}, selection.requirements), labels):
                        found |= refs
        return found


_Place = tuple[GVK, str, tuple[str, str] | None]


def _places(selection: Selection) -> Iterator[_Place]:
    first = next((each for each in selection.requirements if each.operator == "In"), None)
    for label in [(first.key, value) for value in first.values] if first else [None]:
        yield selection.gvk, selection.namespace, label


def _fits(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    present = requirement.key in labels
    listed = labels.get(requirement.key) in requirement.values
    match requirement.operator:
        case "In":
            return present and listed
        case "NotIn":
            return not (present and listed)
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case operator:
            raise AssertionError(f"{operator!r} was accepted by the reader of selectors")
