"""Rows of the bench's table: verdicts and texts."""

from __future__ import annotations

import pytest

from bench.figures import Cost, Goal, Row, Verdict, number, ratio_row, share
from bench.table import markdown_table


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.04, Verdict.TARGET_MET), (0.05, Verdict.WITHIN_LIMIT), (0.1, Verdict.LIMIT_EXCEEDED)],
)
def test_a_share_is_judged_by_target_and_limit(ours: float, verdict: Verdict) -> None:
    """At most the target is best; more than the limit fails."""
    row = ratio_row("work", ours, 1.0, Goal(limit=1 / 12, target=1 / 25))
    assert row.verdict is verdict


def test_a_row_without_limit_cannot_exceed_it() -> None:
    """A missed target alone is not a failure."""
    assert (
        Row("work", "", "", 500, Goal(limit=None, target=120), number).verdict
        is Verdict.TARGET_MISSED
    )


def test_a_value_equal_to_the_limit_is_within_it() -> None:
    """A limit of 0 accepts 0."""
    assert Row("work", "0", "", 0, Goal(limit=0), number).verdict is Verdict.WITHIN_LIMIT
    assert Row("work", "1", "", 1, Goal(limit=0), number).verdict is Verdict.LIMIT_EXCEEDED


def test_shares_are_printed_as_fractions() -> None:
    """A reader compares 1/20 with 1/12 at once."""
    assert share(0.05) == "1/20"
    assert share(0) == "0"


def test_a_figure_without_limit_and_target_is_not_judged() -> None:
    """It is there for readers to compare."""
    assert Row("work", "", "", 500, Goal(), number).verdict is Verdict.NONE


def test_the_median_of_costs_is_taken_of_both_times() -> None:
    """The wall time and the CPU time of the result may be of different measurements."""
    assert Cost.median([Cost(1, 90), Cost(2, 20), Cost(9, 10)]) == Cost(2, 20)


def test_markdown_has_a_line_for_each_row() -> None:
    """The document holds the same cells as the terminal."""
    row = ratio_row("work", 0.1, 2.0, Goal(limit=1 / 12, target=1 / 25))
    assert markdown_table([row]).splitlines()[2] == (
        "| work | 0.100 s | 2.00 s | 1/20 | 1/12 | 1/25 | within limit |"
    )
