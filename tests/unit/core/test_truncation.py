"""Long texts are cut with a mark that shows how much is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.texts import shortened, truncated


@given(st.text(), st.integers(101, 400))
def test_a_text_fits_the_limit(text: str, limit: int) -> None:
    """Short ones stay; of others the first and the last part and the length are given."""
    short = truncated(text, limit)
    assert len(short.encode(errors="replace")) <= limit
    if short != text:
        whole = text.encode(errors="replace").decode()
        missing = len(text) - len(short)
        first, last = short.split(f" of {len(text)} characters] ")
        assert whole.startswith(first.rpartition(" [cut: ")[0])
        assert whole.endswith(last)
        assert missing < int(first.rpartition(" [cut: ")[2]) < len(text)


def test_a_text_that_is_cut_twice_shows_its_first_length() -> None:
    """The mark of the first cut gives the length that the second one shows."""
    once = truncated("é" * 3_000_000, 16 * 1024)
    twice = truncated(once, 300)
    assert " of 3000000 characters]" in once
    assert " of 3000000 characters]" in twice
    assert twice.count("[cut:") == 1
    assert len(twice.encode()) <= 300


def test_the_end_of_a_message_stays() -> None:
    """It has the cure."""
    short = truncated(f"cannot {'x' * 1000}: set --work-dir", 200)
    assert short.startswith("cannot x")
    assert short.endswith("x: set --work-dir")


def test_a_mark_that_a_resource_contains_is_harmless() -> None:
    """Python converts no number of thousands of digits."""
    forged = f" [cut: {'9' * 5000} of {'9' * 5000} characters] "
    assert len(truncated(forged * 3, 300)) <= 300


def test_a_text_of_a_column_keeps_its_end_where_the_cure_is() -> None:
    """On one line, without a mark of its length."""
    assert shortened("a  b\nc", 10) == "a b c"
    found = shortened("the cause is long " * 3 + "fix it", 20)
    assert (len(found), found) == (20, "the caus...ng fix it")
