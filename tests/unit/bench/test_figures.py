"""Rows of the bench's table: verdicts and texts."""

from __future__ import annotations

import pytest

from bench.figures import Cost, Goal, Row, Verdict, compared, number, ratio_row, share
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


def test_wall_and_cpu_time_are_rows_of_their_own() -> None:
    """The median of costs is taken for each of them."""
    ours = Cost.median([Cost(1, 10), Cost(2, 20), Cost(9, 90)])
    wall, cpu = compared("work", ours, Cost(20, 40), Goal(limit=0.2, target=0.1))
    assert (wall.value, cpu.value) == (0.1, 0.5)
    assert (wall.verdict, cpu.verdict) == (Verdict.TARGET_MET, Verdict.LIMIT_EXCEEDED)


def test_markdown_has_a_line_for_each_row() -> None:
    """The document holds the same cells as the terminal."""
    row = ratio_row("work", 0.1, 2.0, Goal(limit=1 / 12, target=1 / 25))
    assert markdown_table([row]).splitlines()[2] == (
        "| work | 0.100 s | 2.00 s | 1/20 | 1/12 | 1/25 | within limit |"
    )
