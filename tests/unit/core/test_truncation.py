"""Long texts are cut with a mark that shows how much is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.truncation import truncated


@given(st.text(), st.integers(101, 400))
def test_a_text_fits_the_limit(text: str, limit: int) -> None:
    """Short ones stay; of others the first part and the length are given."""
    short = truncated(text, limit)
    assert len(short.encode(errors="replace")) <= limit
    if short != text:
        kept = short.partition(" [cut: ")[0]
        assert text.encode(errors="replace").decode().startswith(kept)
        assert short.endswith(f" of {len(text)} characters]")


def test_a_text_that_is_cut_twice_shows_its_first_length() -> None:
    """The mark of the first cut gives the length that the second one shows."""
    once = truncated("é" * 3_000_000, 16 * 1024)
    twice = truncated(once, 300)
    assert once.endswith(" of 3000000 characters]")
    assert twice.endswith(" of 3000000 characters]")
    assert twice.count("[cut:") == 1
    assert len(twice.encode()) <= 300
