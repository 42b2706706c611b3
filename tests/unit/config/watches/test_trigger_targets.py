"""Which resources an object of `triggers` is about."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.config.watches.expressions import top_level_fields
from operator_runner.config.watches.selection import (
    needs_whole_objects,
    selected_by,
    targets_of,
)
from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import (
    ALL_NAMESPACES,
    GVK,
    Json,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectTrigger,
    TriggerTargets,
)

POD = GVK("", "v1", "Pod")


def pod(**more: Any) -> Json:
    metadata = {"name": "a", "namespace": "ns", "labels": {"app": "a"}, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ({}, TriggerTargets(frozenset(["ns"]))),
        ({"selector": LabelSelector({"app": "b"})}, None),
        ({"when": "metadata.labels.app == 'b'"}, None),
        ({"when": "spec.nodeName"}, TriggerTargets(frozenset(["ns"]))),
        ({"name": "metadata.labels.app"}, TriggerTargets(frozenset(["ns"]), frozenset(["a"]))),
        ({"name": "['b', spec.nodeName, spec.none, '']"}, {"b", "n"}),
        ({"name": "metadata.annotations.report"}, None),
        ({"namespace": "['x', 'y']"}, TriggerTargets(frozenset("xy"))),
        ({"namespace": "'*'"}, TriggerTargets(frozenset([ALL_NAMESPACES]))),
        ({"namespace": "spec.none"}, None),
        ({"matching": "spec.s"}, TriggerTargets(frozenset(["ns"]), labels={"app": "a"})),
    ],
)
def test_a_trigger_finds_the_targets_of_an_object(
    expressions: dict[str, Any], expected: Any
) -> None:
    """Namespaces, names and labels; nothing of an object that is not chosen or names nothing."""
    found = targets_of(pod(), ObjectTrigger(POD, **expressions))
    if isinstance(expected, set):
        assert found is not None
        found, expected = found.names, frozenset(expected)  # type: ignore[assignment]
    assert found == expected


def test_an_object_without_namespace_is_about_all() -> None:
    """A Namespace, for example."""
    body = {"metadata": {"name": "team-a"}}
    assert targets_of(body, ObjectTrigger(POD)) == TriggerTargets(frozenset([ALL_NAMESPACES]))


@pytest.mark.parametrize(
    ("key", "expression", "reason"),
    [
        ("when", "length(spec.none)", "In function length()"),
        ("name", "metadata", "expected text or a list of text, got a map"),
        ("name", "[`3`]", "expected text or a list of text, got a number"),
        ("namespace", "`true`", "expected text or a list of text, got a boolean"),
        ("name", "[['a']]", "expected text or a list of text, got a list"),
    ],
)
def test_a_wrong_value_is_an_error(key: str, expression: str, reason: str) -> None:
    """It names key, expression and reason."""
    trigger = ObjectTrigger(POD, **{key: expression})  # type: ignore[arg-type]
    with pytest.raises(ExpressionError) as caught:
        targets_of(pod(), trigger)
    assert (caught.value.key, caught.value.expression) == (key, expression)
    assert reason in caught.value.reason


def test_a_selector_is_read_from_a_resource() -> None:
    """A label selector, or nothing; anything else is an error."""
    trigger = ObjectTrigger(POD, matching="spec.selector")
    requirements = (LabelSelectorRequirement("app", "In", ("a",)),)
    assert (
        selected_by({"spec": {"selector": {"matchLabels": {"app": "a"}}}}, trigger) == requirements
    )
    assert selected_by({"spec": {"selector": {}}}, trigger) == ()
    assert selected_by({"spec": {}}, trigger) is None
    assert selected_by({"spec": {}}, ObjectTrigger(POD)) is None
    with pytest.raises(ExpressionError, match="not a label selector"):
        selected_by({"spec": {"selector": "app=a"}}, trigger)
    service = ObjectTrigger(POD, matching="{matchLabels: spec.selector}")
    assert selected_by({"spec": {"selector": {"app": "a"}}}, service) == requirements


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("metadata.labels.app", {"metadata"}),
        ("metadata.finalizers[0] | [0]", {"metadata"}),
        ("metadata.ownerReferences[?kind == 'A'].name | [0]", {"metadata"}),
        ("sort_by(metadata.ownerReferences, &name)[0:2]", {"metadata"}),
        ("metadata.labels.* | keys({a: status})", {"metadata"}),
        ("!(metadata.a) && spec.b || kind == 'Pod'", {"metadata", "spec", "kind"}),
        ("{a: spec.a, b: [status, 'x']}", {"spec", "status"}),
        ("contains(metadata.name, join('', data.*))", {"metadata", "data"}),
        ("'*'", set()),
        ("`{}`.spec", set()),
        ("@", None),
        ("@.spec", None),
        ("keys(@)", None),
        ("*", None),
        ("[]", None),
        ("metadata || *.a", None),
    ],
)
def test_the_top_level_fields_of_an_expression_are_found(
    expression: str, fields: set[str] | None
) -> None:
    """Of the object itself; nested reads are part of them."""
    assert top_level_fields(expression) == fields


def test_metadata_is_enough_for_most_triggers() -> None:
    """Whole objects are needed only for fields beside metadata."""
    assert not needs_whole_objects(ObjectTrigger(POD))
    assert not needs_whole_objects(ObjectTrigger(POD, matching="spec.selector"))
    assert not needs_whole_objects(ObjectTrigger(POD, when="kind", name="metadata.name"))
    assert needs_whole_objects(ObjectTrigger(POD, when="status.phase == 'Running'"))
    assert needs_whole_objects(ObjectTrigger(POD, namespace="keys(@)"))
