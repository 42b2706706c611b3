"""Wait until a condition holds, with a deadline instead of a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_INTERVAL = 0.2
_LONGEST_INTERVAL = 1.0
"""The pause is as long as the last look took, so that looking does not load a busy machine."""


def eventually(
    look: Callable[[], T],
    check: Callable[[T], Any] = bool,
    *,
    seconds: float = 180,
    details: Callable[[], str] = str,
) -> T:
    """Return what `look` gives as soon as `check` is satisfied with it.

    After `seconds` the last value is reported, with the text of `details` (for example a log).
    """
    deadline = time.monotonic() + seconds
    while True:
        started = time.monotonic()
        seen = look()
        took = time.monotonic() - started
        # What `"text".__eq__` returns for None.
        if (verdict := check(seen)) is not NotImplemented and verdict:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s; last seen: {seen!r}\n{details()}")
        time.sleep(max(_INTERVAL, min(took, _LONGEST_INTERVAL)))


def steadily(look: Callable[[], T], expected: T, *, until: Callable[[], bool]) -> None:
    """Assert that `look` gives the same until something else has happened."""
    deadline = time.monotonic() + 300
    while not until():
        assert look() == expected
        assert time.monotonic() < deadline
        time.sleep(_INTERVAL)
    assert look() == expected
