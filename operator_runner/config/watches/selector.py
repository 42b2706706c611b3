"""Read label selectors of watches.yaml and of resources, with the rules of Kubernetes."""

from __future__ import annotations

import re
from typing import Any

from operator_runner.config.watches import expressions
from operator_runner.config.watches.map_reader import MapReader
from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import Json, LabelSelector, LabelSelectorRequirement
from operator_runner.core.object_names import MAX_SUBDOMAIN, SUBDOMAIN_PATTERN

WITH_VALUES = ("In", "NotIn")
OPERATORS = (*WITH_VALUES, "Exists", "DoesNotExist")
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = rf"(?=.{{1,{MAX_SUBDOMAIN}}}/){SUBDOMAIN_PATTERN}"
QUALIFIED_NAME_PATTERN = rf"(?:{_DOMAIN}/)?{_PART}"
LABEL_VALUE_PATTERN = rf"(?:{_PART})?"

_HINT = "; see the label syntax of Kubernetes"
_MAX_REQUIREMENTS = 100
"""Requirements of a selector in a resource: each is compared with every object that changes."""


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


def requirements_of(value: Any) -> tuple[LabelSelectorRequirement, ...]:
    """Return the requirements of a label selector in a resource, sorted.

    Raises ValueError, with the reason, for anything that is not a label selector.
    """
    if not isinstance(value, dict) or not value.keys() <= {"matchLabels", "matchExpressions"}:
        raise ValueError("not a label selector; write matchLabels and matchExpressions")
    match value.get("matchLabels") or {}, value.get("matchExpressions") or []:
        case dict() as labels, list() as listed:
            if len(labels) + len(listed) > _MAX_REQUIREMENTS:
                raise ValueError(f"a label selector has at most {_MAX_REQUIREMENTS} requirements")
            found = {_requirement_of_label(*each) for each in labels.items()}
            found |= {_requirement_of(each) for each in listed}
        case _:
            raise ValueError("matchLabels must be a map, and matchExpressions a list")
    return tuple(sorted(found, key=lambda each: (each.operator, each.key, each.values)))


def selected_requirements(
    key: str, expression: str, body: Json
) -> tuple[LabelSelectorRequirement, ...] | None:
    """Return the requirements of the selector that an expression gives; None for nothing.

    Raises ExpressionError with the `key` of the expression.
    """
    value = expressions.value_of(key, expression, body)
    try:
        return None if value is None else requirements_of(value)
    except ValueError as error:
        raise ExpressionError(key, expression, str(error)) from error


def _requirement_of_label(key: str, value: Any) -> LabelSelectorRequirement:
    if not isinstance(value, str):
        raise ValueError(f"the value of {key} must be text")  # noqa: TRY004 as for any other value
    return LabelSelectorRequirement(key, "In", (value,))


def _requirement_of(value: Any) -> LabelSelectorRequirement:
    fields = value if isinstance(value, dict) else {}
    key, operator, values = fields.get("key"), fields.get("operator"), fields.get("values") or []
    if not isinstance(key, str) or operator not in OPERATORS:
        raise ValueError(f"matchExpressions need a key, and an operator of {', '.join(OPERATORS)}")
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError(f"the values of {key} must be a list of text")
    if (operator in WITH_VALUES) is not bool(values):
        raise ValueError(f"{operator} of {key}: In and NotIn need values, the others have none")
    return LabelSelectorRequirement(key, operator, tuple(values))


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
        fields.problem(name, f'invalid label key "{key}"{_HINT}')


def _check_value(fields: MapReader, name: str, value: str) -> None:
    if not re.fullmatch(LABEL_VALUE_PATTERN, value):
        fields.problem(name, f'invalid label value "{value}"{_HINT}')
