"""Annotations of a resource."""

from __future__ import annotations

from datetime import timedelta

import pytest

from operator_runner.core.model import Json
from operator_runner.reconcile.annotations import Overrides, read_overrides


def annotated(**values: str) -> Json:
    prefix = "ansible.sdk.operatorframework.io/"
    annotations = {prefix + name.replace("_", "-"): value for name, value in values.items()}
    return {"metadata": {"name": "sample", "annotations": annotations}}


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {"other": "1"}}])
def test_without_annotations_nothing_is_replaced(metadata: Json) -> None:
    """All settings of watch and flags stay."""
    assert read_overrides({"metadata": metadata}) == Overrides()


def test_all_three_replace_their_setting() -> None:
    """Period, number of artifacts and verbosity are the resource's own."""
    body = annotated(reconcile_period="1m30s", max_runner_artifacts="50", verbosity="4")

    assert read_overrides(body) == Overrides(timedelta(seconds=90), 50, 4)


@pytest.mark.parametrize("text", ["0s", "0", "-5s"])
def test_a_period_of_zero_turns_periodic_runs_off(text: str) -> None:
    """Other than in watches.yaml, zero is a value here."""
    assert read_overrides(annotated(reconcile_period=text)).period == timedelta(0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("soon", 'time: invalid duration "soon"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("", 'time: invalid duration ""'),
    ],
)
def test_a_bad_period_is_an_error_of_the_resource(text: str, error: str) -> None:
    """The text is that of ansible-operator's condition."""
    overrides = read_overrides(annotated(reconcile_period=text, verbosity="3"))

    assert overrides.error == f"Unable to parse reconcile period annotation: {error}"
    assert overrides.period is None
    assert overrides.verbosity == 3


@pytest.mark.parametrize("text", ["y" * 200_000, "1" + "y" * 200_000], ids=["text", "unit"])
def test_the_error_of_a_long_period_is_short(text: str) -> None:
    """It is in the condition, the Event and the log line of each retry."""
    assert len(read_overrides(annotated(reconcile_period=text)).error) < 400


@pytest.mark.parametrize("text", ["", "many", "1.5", " 3", "0x10", "\u0661"])
def test_bad_numbers_are_ignored(text: str) -> None:
    """They neither replace a setting nor stop the resource."""
    body = annotated(max_runner_artifacts=text, verbosity=text)

    assert read_overrides(body) == Overrides()


@pytest.mark.parametrize(("text", "verbosity"), [("-1", 0), ("+2", 2), ("007", 7), ("99", 7)])
def test_verbosity_stays_within_the_range_of_ansible(text: str, verbosity: int) -> None:
    """Ansible supports up to seven v."""
    assert read_overrides(annotated(verbosity=text)).verbosity == verbosity


@pytest.mark.parametrize(
    ("text", "kept"), [("1", 1), ("100", 100), ("0", 100), ("-1", 100), ("9" * 18, 100)]
)
def test_a_resource_does_not_fill_the_disk_with_artifacts(text: str, kept: int) -> None:
    """Zero keeps all in ansible-operator; here it keeps as many as an annotation may ask for."""
    assert read_overrides(annotated(max_runner_artifacts=text)).artifacts == kept


def test_an_invalid_policy_of_drift_is_an_error() -> None:
    """Without it the role would write what the user wants to keep."""
    annotations = {"operator-runner.dev/drift": "ignored"}
    overrides = read_overrides({"metadata": {"annotations": annotations}})
    expected = "annotation operator-runner.dev/drift: 'ignored' is not one of enforce, warn, ignore"
    assert overrides.error == expected
