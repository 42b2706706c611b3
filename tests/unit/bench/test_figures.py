"""Rows of the bench's table: verdicts and texts."""

from __future__ import annotations

import pytest

from bench.figures import Cost, Goal, Row, Verdict, compared, number, ratio_row, share
from bench.table import markdown_table


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.04, Verdict.AIM), (0.05, Verdict.BAR), (0.1, Verdict.MISSED)],
)
def test_a_share_is_judged_by_aim_and_bar(ours: float, verdict: Verdict) -> None:
    """Less than the aim is best, more than the bar is a miss."""
    row = ratio_row("work", ours, 1.0, Goal(bar=1 / 12, aim=1 / 25))
    assert row.verdict is verdict


def test_a_row_without_bar_cannot_be_missed() -> None:
    """An aim alone is no obligation."""
    assert Row("work", "", "", 500, Goal(bar=None, aim=120), number).verdict is Verdict.SHORT


def test_a_bar_that_is_the_limit_is_held() -> None:
    """Nothing left behind is what a bar of 0 asks for."""
    assert Row("work", "0", "", 0, Goal(bar=0), number).verdict is Verdict.BAR
    assert Row("work", "1", "", 1, Goal(bar=0), number).verdict is Verdict.MISSED


def test_shares_are_told_as_one_over_a_number() -> None:
    """A reader compares 1/20 with 1/12 at once."""
    assert share(0.05) == "1/20"
    assert share(0) == "0"


def test_wall_and_cpu_time_are_rows_of_their_own() -> None:
    """The median of costs is taken for each of them."""
    ours = Cost.median([Cost(1, 10), Cost(2, 20), Cost(9, 90)])
    wall, cpu = compared("work", ours, Cost(20, 40), Goal(bar=0.2, aim=0.1))
    assert (wall.value, cpu.value) == (0.1, 0.5)
    assert (wall.verdict, cpu.verdict) == (Verdict.AIM, Verdict.MISSED)


def test_markdown_has_a_line_for_each_row() -> None:
    """The document holds the same cells as the terminal."""
    row = ratio_row("work", 0.1, 2.0, Goal(bar=1 / 12, aim=1 / 25))
    assert markdown_table([row]).splitlines()[2] == (
        "| work | 0.100 s | 2.00 s | 1/20 | 1/12 | 1/25 | bar held |"
    )
