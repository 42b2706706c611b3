"""Find the objects that a resource refers to, by `references` of its watch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from operator_runner.config.watches import expressions
from operator_runner.config.watches.selector import requirements_of
from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import Json, ObjectRef, Reference, Selection, Watch

_MAX_TARGETS = 10_000
"""Names, or values of a selector, times namespaces: filed in 0.1 s, with 10 MB of memory.

A user with write access to a resource can write lists of both, whose product has no bound.
"""


def referenced(
    body: Json, watch: Watch, failed: Callable[[ExpressionError], None]
) -> Iterator[ObjectRef | Selection]:
    """Yield the objects that a resource names, and the selections of objects by label.

    Each is also yielded without a namespace, because its kind may be cluster-scoped. `failed` is
    called for each expression that cannot be evaluated, or gives no names or selector where they
    are expected; it refers to nothing then.
    """
    for number, reference in enumerate(watch.references):
        try:
            yield from _objects(body, reference)
        except ExpressionError as error:
            failed(error.within(f"references[{number}]"))


def _objects(body: Json, reference: Reference) -> Iterator[ObjectRef | Selection]:
    namespaces = {*_namespaces(body, reference), ""}
    if reference.name is not None:
        names = expressions.texts_of("name", reference.name, body)
        _check_number("name", reference.name, len(names), namespaces)
        for name in names:
            for namespace in namespaces:
                yield ObjectRef(reference.gvk, namespace, name)
    if reference.selector is not None:
        yield from _selections(body, reference, reference.selector, namespaces)


def _selections(
    body: Json, reference: Reference, expression: str, namespaces: set[str]
) -> Iterator[Selection]:
    value = expressions.value_of("selector", expression, body)
    if value is None:
        return
    try:
        requirements = requirements_of(value)
    except ValueError as error:
        raise ExpressionError("selector", expression, str(error)) from error
    values = sum(len(each.values) or 1 for each in requirements)
    _check_number("selector", expression, values, namespaces)
    for namespace in namespaces:
        yield Selection(reference.gvk, namespace, requirements)


def _check_number(key: str, expression: str, number: int, namespaces: set[str]) -> None:
    given = len(namespaces - {""})
    if max(1, number) * max(1, given) > _MAX_TARGETS:
        raise ExpressionError(
            key,
            expression,
            f"{number} values in {given} namespaces are more than {_MAX_TARGETS}; refer to fewer"
            " objects, or select them by a label",
        )


def _namespaces(body: Json, reference: Reference) -> frozenset[str]:
    """Return the namespaces of a reference; the resource's own, unless the field names others."""
    named: frozenset[str] = frozenset()
    if reference.namespace is not None:
        named = expressions.texts_of("namespace", reference.namespace, body)
    return named or frozenset([body["metadata"].get("namespace") or ""])
