"""Which resources a watch chooses: labels and `when`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from operator_runner.config.watches import is_selected
from operator_runner.config.watches.expressions import check, evaluate
from operator_runner.config.watches.selection import blocks_upgrade, is_deselected
from operator_runner.core.labels import match_labels
from operator_runner.core.model import (
    GVK,
    Deselection,
    Json,
    LabelSelector,
    LabelSelectorRequirement,
    RunContent,
    Watch,
)

LABELS = {"tier": "front", "zone": "a"}


@pytest.mark.parametrize(
    ("labels", "requirements", "expected"),
    [
        ({}, (), True),
        ({"tier": "front"}, (), True),
        ({"tier": "front", "zone": "a"}, (), True),
        ({"tier": "back"}, (), False),
        ({"size": ""}, (), False),
        ({}, (LabelSelectorRequirement("zone", "In", ("a", "b")),), True),
        ({}, (LabelSelectorRequirement("zone", "In", ("b",)),), False),
        ({}, (LabelSelectorRequirement("size", "In", ("a",)),), False),
        ({}, (LabelSelectorRequirement("zone", "NotIn", ("a",)),), False),
        ({}, (LabelSelectorRequirement("zone", "NotIn", ("b",)),), True),
        ({}, (LabelSelectorRequirement("size", "NotIn", ("a",)),), True),
        ({}, (LabelSelectorRequirement("zone", "Exists"),), True),
        ({}, (LabelSelectorRequirement("size", "Exists"),), False),
        ({}, (LabelSelectorRequirement("size", "DoesNotExist"),), True),
        ({}, (LabelSelectorRequirement("zone", "DoesNotExist"),), False),
        (
            {"tier": "front"},
            (LabelSelectorRequirement("zone", "Exists"), LabelSelectorRequirement("x", "Exists")),
            False,
        ),
    ],
)
def test_selectors_match_as_in_kubernetes(
    labels: dict[str, str], requirements: tuple[LabelSelectorRequirement, ...], expected: bool
) -> None:
    """All labels and all expressions must hold."""
    assert match_labels(LabelSelector(labels, requirements), LABELS) is expected


def watch(when: str | None = None, selector: LabelSelector | None = None) -> Watch:
    return Watch(
        GVK("example.com", "v1", "Web"),
        RunContent(role=Path("/roles/web")),
        when=when,
        selector=selector or LabelSelector(),
    )


def web(**metadata: Any) -> Json:
    return {"metadata": {"name": "shop", **metadata}, "spec": {"size": 0}}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, True),
        ("metadata.annotations.paused != 'true'", True),
        ("metadata.name == 'shop'", True),
        ("metadata.name == 'other'", False),
        ("spec.size", True),
        ("spec.missing", False),
        ("metadata.annotations || `[]`", False),
        ("`{}`", False),
        ("`false`", False),
        ("''", False),
    ],
)
def test_when_decides_by_the_truth_of_jmespath(when: str | None, expected: bool) -> None:
    """Null, false and empty values are false; all others, 0 too, are true."""
    assert is_selected(web(), watch(when)) is expected


def test_labels_are_checked_before_when() -> None:
    """Both must choose the resource."""
    selector = LabelSelector({"tier": "front"})

    assert is_selected(web(labels={"tier": "front"}), watch("spec", selector))
    assert not is_selected(web(labels={"tier": "back"}), watch("spec", selector))
    assert not is_selected(web(labels=None), watch("spec", selector))


@pytest.mark.parametrize(
    ("when", "annotated", "expected"),
    [
        ("spec.missing", True, True),
        ("spec.missing", False, False),
        ("spec.size", True, False),
        ("length(spec.missing) > `0`", True, False),
    ],
)
def test_only_a_clear_no_deselects_a_resource_that_was_run(
    when: str, annotated: bool, expected: bool
) -> None:
    """A `when` without a value, or another version's watch, does not deselect."""
    deselecting = replace(watch(when), deselection=Deselection("example.com/a", None))
    body = web(annotations={"example.com/a": "true"} if annotated else None)
    assert is_deselected(body, deselecting) is expected
    assert not is_deselected(body, watch(when))
    assert not is_deselected(body, replace(deselecting, versions=("v2", "v1")))


def test_a_when_that_cannot_be_evaluated_is_reported() -> None:
    """length() of a missing field has no answer."""
    with capture_logs() as logs:
        chosen = is_selected(web(), watch("length(spec.missing) > `0`"))

    assert not chosen
    (line,) = logs
    assert line["log_level"] == "warning"
    assert line["name"] == "shop"
    assert "length()" in line["error"]


@pytest.mark.parametrize(
    "expression",
    [
        "spec.text > `1`",
        "spec.list[?@ < `1`]",
        "contains('dev staging', spec.number)",
        "contains(spec.text, spec.missing)",
        "max_by(spec.maps, &a)",
        "merge(spec, spec.missing)",
        "ceil(to_number(spec.infinite))",
        "avg([to_number(spec.digits)])",
        "subtract(to_number(spec.digits), `0.5`)",
    ],
)
def test_values_of_other_types_fail_the_expression(expression: str) -> None:
    """The writer of a resource selects them: a text where the expression compares numbers."""
    spec = {
        "text": "ten",
        "number": 5,
        "list": ["a", 1],
        "maps": [{"a": 1}, {"a": "x"}],
        "infinite": "1e999",
        "digits": "9" * 4_000,
    }
    check(expression)
    with pytest.raises(ValueError, match=r"."):
        evaluate(expression, {"spec": spec})


def test_an_error_of_an_expression_is_short() -> None:
    """Its text quotes the value, which may be megabytes long."""
    with pytest.raises(ValueError, match=r"join\(\)") as excinfo:
        evaluate("join(',', spec)", {"spec": ["x" * 1_000_000, 1]})

    assert len(str(excinfo.value)) <= 1024


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "the expression is empty"),
        ("a.", "position 2: the expression ends too early"),
        ("a == 'b", "position 5: "),
        ("a ! b", "position 2: "),
        ("a b", "position 2: unexpected 'b'"),
        ("lenght(a)", r"unknown function lenght\(\); did you mean length\(\)\?"),
        ("a[?contains(@)]", r"contains\(\) takes 2 arguments, 1 given"),
        ("c || !a.b == c", r"`!a.b` is `\(!a\).b`, which is always null; write `!\(a.b\)`"),
        ("a[?!b.c]", "which is always null"),
        ("merge()", r"merge\(\) takes 1 argument, 0 given"),
    ],
)
def test_a_bad_expression_is_found_before_it_is_used(expression: str, message: str) -> None:
    """The error has the position; names and arguments of functions are checked as well."""
    with pytest.raises(ValueError, match=message):
        check(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("merge(a, a, {c: `2`})", {"b": 1, "c": 2}),
        ("sort_by(list, &b)[0].b", 1),
        ("list[?b == `2`].b | [0]", 2),
        ("subtract(a.b, list[0].b)", -1),
    ],
)
def test_valid_expressions_are_accepted(expression: str, expected: Any) -> None:
    """Variadic functions, expression references, filters and subtract() are valid."""
    check(expression)

    assert evaluate(expression, {"a": {"b": 1}, "list": [{"b": 2}, {"b": 1}]}) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (None, False),
        ("`true`", True),
        ("spec.size == `0`", True),
        ("spec.version != status.version", False),
        ("metadata.name != 'shop'", False),
    ],
)
def test_an_expression_selects_runs_that_block_upgrades(
    expression: str | None, expected: bool
) -> None:
    """Without one, none does."""
    assert blocks_upgrade(web(), replace(watch(), block_upgrade=expression)) is expected


def test_a_run_blocks_upgrades_if_the_expression_fails() -> None:
    """The safe answer, with a warning that names the resource."""
    with capture_logs() as logs:
        assert blocks_upgrade(web(), replace(watch(), block_upgrade="length(spec.missing)"))

    (line,) = logs
    assert line["log_level"] == "warning"
    assert line["name"] == "shop"
    assert "length()" in line["error"]
