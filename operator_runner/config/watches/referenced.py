"""Which objects a resource refers to, by `references` of its watch. Pure but for the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog

from operator_runner.config.watches import expressions
from operator_runner.config.watches.selector import requirements_of
from operator_runner.core.model import Json, ObjectRef, Reference, Selection, Watch

_log = structlog.get_logger(__name__)


def referenced(body: Json, watch: Watch) -> Iterator[ObjectRef | Selection]:
    """Yield the objects that a resource names, and the selections of objects by label.

    Each is also yielded without a namespace, because its kind may be cluster-scoped.
    """
    for reference in watch.references:
        namespaces = {*_namespaces(body, reference), ""}
        if reference.name is not None:
            for name in _texts(body, reference.name):
                for namespace in namespaces:
                    yield ObjectRef(reference.gvk, namespace, name)
        if reference.selector is not None:
            yield from _selections(body, reference, reference.selector, namespaces)


def _selections(
    body: Json, reference: Reference, expression: str, namespaces: set[str]
) -> Iterator[Selection]:
    value = _value(body, expression)
    if value is None:
        return
    try:
        requirements = requirements_of(value)
    except ValueError as error:
        _warn(body, expression, error)
        return
    for namespace in namespaces:
        yield Selection(reference.gvk, namespace, requirements)


def _namespaces(body: Json, reference: Reference) -> list[str]:
    if reference.namespace is not None:
        return _texts(body, reference.namespace)
    return [body["metadata"].get("namespace") or ""]


def _texts(body: Json, expression: str) -> list[str]:
    found = _value(body, expression)
    values = found if isinstance(found, list) else [found]
    return [value for value in values if isinstance(value, str) and value]


def _value(body: Json, expression: str) -> Any:
    """Return the value of an expression; None if it has none."""
    try:
        return expressions.evaluate(expression, body)
    except ValueError as error:
        _warn(body, expression, error)
        return None


def _warn(body: Json, expression: str, error: ValueError) -> None:
    _log.warning(
        "Cannot evaluate an expression of `references` in watches.yaml",
        expression=expression,
        name=body["metadata"]["name"],
        error=str(error),
    )
