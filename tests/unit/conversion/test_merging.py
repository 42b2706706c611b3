"""An edit of a poor copy, carried over to the rich original."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.conversion.preserved_fields import merge
from operator_runner.core.object_diff import ABSENT


@pytest.mark.parametrize(
    ("base", "edited", "rich", "merged"),
    [
        (1, 1, 2, 2),
        (1, 3, 2, 3),
        (ABSENT, 3, 2, 3),
        (1, ABSENT, 2, ABSENT),
        (1, True, 2, True),
        ({"a": 1}, {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": 1}),
        ({"a": 1}, {}, {"a": 1, "b": 1}, {"b": 1}),
        ({}, {"c": 1}, {"b": 1}, {"b": 1, "c": 1}),
        ({"a": 1}, [1], {"a": 1, "b": 1}, [1]),
        ([1], [2], [1, 5], [2, 5]),
        ([1], [5], [1, 5], [5]),
        ([1], [1, 2], [1, 5], [1, 2]),
        ([1], [], [1, 5], []),
        ([1, 2], [1, 3], [1], [1, 3]),
        ([{"p": 1}], [{"p": 2}], [{"p": 1, "n": "a"}], [{"p": 2, "n": "a"}]),
        (
            [{"p": 1, "t": "x"}],
            [{"p": 2, "t": "x"}],
            [{"p": 1, "t": "x"}, {"p": 2, "t": "y"}, {"p": 2, "t": "x", "n": "b"}],
            [{"p": 2, "t": "x"}, {"p": 2, "t": "y"}],
        ),
    ],
)
def test_edits_are_merged_over_the_original(base: Any, edited: Any, rich: Any, merged: Any) -> None:
    """Changed values are those of the edit, all others those of the original."""
    found = merge(base, edited, rich)
    assert found == merged
    assert type(found) is type(merged)
