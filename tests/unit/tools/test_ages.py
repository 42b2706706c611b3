"""Ages as kubectl writes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from operator_runner.tools.run_lines import age


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=303), "5m3s"),
        (timedelta(minutes=9), "9m"),
        (timedelta(minutes=179, seconds=59), "179m"),
        (timedelta(hours=3, minutes=20), "3h20m"),
        (timedelta(hours=47, minutes=59), "47h"),
        (timedelta(days=2, hours=4), "2d4h"),
        (timedelta(days=9, hours=4), "9d"),
    ],
)
def test_units_get_coarser(elapsed: timedelta, text: str) -> None:
    """The results are those of HumanDuration."""
    assert age(elapsed) == text
