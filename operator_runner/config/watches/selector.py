"""Label selectors with the rules of Kubernetes: reading them from a watch, and matching."""

from __future__ import annotations

import re
from collections.abc import Mapping

from operator_runner.config.watches.fields import MapReader
from operator_runner.core.model import LabelSelector, LabelSelectorRequirement

WITH_VALUES = ("In", "NotIn")
OPERATORS = (*WITH_VALUES, "Exists", "DoesNotExist")
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"(?=.{{1,253}}/){_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*"
QUALIFIED_NAME_PATTERN = rf"(?:{_DOMAIN}/)?{_PART}"
LABEL_VALUE_PATTERN = rf"(?:{_PART})?"

_CURE = "; see the label syntax of Kubernetes"


def match_labels(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether labels match; an empty selector matches all, NotIn also absent keys."""
    wanted = selector.match_labels.items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _fits(requirement, labels) for requirement in selector.match_expressions
    )


def is_qualified_name(text: str) -> bool:
    """Return whether text is `name` or `domain/name`, as label keys and finalizers must be."""
    return re.fullmatch(QUALIFIED_NAME_PATTERN, text) is not None


def read_selector(fields: MapReader) -> LabelSelector:
    """Read `matchLabels` and `matchExpressions`; report what Kubernetes would reject."""
    labels = fields.labels("matchLabels")
    for key, value in labels.items():
        _check_key(fields, "matchLabels", key)
        _check_value(fields, "matchLabels", value)
    requirements = (_read_requirement(expression) for expression in fields.each("matchExpressions"))
    return LabelSelector(labels, tuple(requirements))


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
            raise AssertionError(f"{operator!r} was accepted by read_selector")


def _read_requirement(fields: MapReader) -> LabelSelectorRequirement:
    requirement = LabelSelectorRequirement(
        fields.text("key"), fields.text("operator"), fields.texts("values")
    )
    _check_key(fields, "key", requirement.key)
    for value in requirement.values:
        _check_value(fields, "values", value)
    if requirement.operator not in OPERATORS:
        fields.problem(
            "operator",
            f'"{requirement.operator}" is not a valid label selector operator;'
            f" write one of {', '.join(OPERATORS)}",
        )
    elif requirement.operator in WITH_VALUES:
        if not requirement.values:
            fields.problem("values", "for 'in', 'notin' operators, values set can't be empty")
    elif requirement.values:
        fields.problem("values", "values set must be empty for exists and does not exist")
    return requirement


def _check_key(fields: MapReader, name: str, key: str) -> None:
    if not is_qualified_name(key):
        fields.problem(name, f'invalid label key "{key}"{_CURE}')


def _check_value(fields: MapReader, name: str, value: str) -> None:
    if not re.fullmatch(LABEL_VALUE_PATTERN, value):
        fields.problem(name, f'invalid label value "{value}"{_CURE}')
