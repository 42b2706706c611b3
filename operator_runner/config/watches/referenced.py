"""Which objects a resource names, by `references` of its watch. Pure but for the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import structlog

from operator_runner.config.watches import expressions
from operator_runner.core.model import Json, ObjectRef, Reference, Watch

_log = structlog.get_logger(__name__)


def referenced(body: Json, watch: Watch) -> Iterator[ObjectRef]:
    """Yield the objects that a resource names, with their namespace.

    Each is also yielded without a namespace, because its kind may be cluster-scoped.
    """
    for reference in watch.references:
        for name in _texts(body, reference.name):
            for namespace in {*_namespaces(body, reference), ""}:
                yield ObjectRef(reference.gvk, namespace, name)


def _namespaces(body: Json, reference: Reference) -> list[str]:
    if reference.namespace is not None:
        return _texts(body, reference.namespace)
    return [body["metadata"].get("namespace") or ""]


def _texts(body: Json, expression: str) -> list[str]:
    try:
        found: Any = expressions.evaluate(expression, body)
    except ValueError as error:
        _log.warning(
            "Cannot evaluate an expression of `references` in watches.yaml",
            expression=expression,
            name=body["metadata"]["name"],
            error=str(error),
        )
        return []
    values = found if isinstance(found, list) else [found]
    return [value for value in values if isinstance(value, str) and value]
