"""Find the resources that an object of `triggers` concerns. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from operator_runner.config.watches import expressions
from operator_runner.config.watches.selector import selected_requirements
from operator_runner.core.labels import match_labels
from operator_runner.core.model import (
    ALL_NAMESPACES,
    Json,
    LabelSelectorRequirement,
    ObjectTrigger,
    TriggerTargets,
)

_METADATA = frozenset({"apiVersion", "kind", "metadata"})


def targets_of(body: Json, trigger: ObjectTrigger) -> TriggerTargets | None:
    """Return what an object is about; None if it is not chosen, or names nothing.

    Raises ExpressionError, whose key is that of the trigger.
    """
    labels = body["metadata"].get("labels") or {}
    if not match_labels(trigger.selector, labels):
        return None
    if trigger.when is not None and not expressions.is_true(
        expressions.value_of("when", trigger.when, body)
    ):
        return None
    namespaces = frozenset([body["metadata"].get("namespace") or ALL_NAMESPACES])
    if trigger.namespace is not None:
        namespaces = expressions.texts_of("namespace", trigger.namespace, body)
    names = None if trigger.name is None else expressions.texts_of("name", trigger.name, body)
    if not namespaces or names == frozenset():
        return None
    return TriggerTargets(namespaces, names, None if trigger.matching is None else labels)


def selected_by(
    resource: Json, trigger: ObjectTrigger
) -> tuple[LabelSelectorRequirement, ...] | None:
    """Return what a resource selects by `matching`; None without a selector.

    Raises ExpressionError, whose key is that of the trigger.
    """
    if trigger.matching is None:
        return None
    return selected_requirements("matching", trigger.matching, resource)


def needs_whole_objects(trigger: ObjectTrigger) -> bool:
    """Return whether an expression reads more of an object than its metadata and kind."""
    fields = (expressions.top_level_fields(each) for each in _over_object(trigger))
    return not all(each is not None and each <= _METADATA for each in fields)


def _over_object(trigger: ObjectTrigger) -> Iterator[str]:
    yield from filter(None, (trigger.when, trigger.name, trigger.namespace))
