"""Suppression of repeated log messages."""

from __future__ import annotations

from operator_runner.core.deduplication import Deduplicator


def test_consecutive_repetitions_are_suppressed() -> None:
    """The default size compares with the last key only."""
    repeated = Deduplicator()
    assert [repeated.is_new(key) for key in ("a", "a", "b", "a")] == [True, False, True, True]


def test_keys_among_the_last_ones_are_suppressed() -> None:
    """A repeated key is kept longer than one that is not repeated."""
    repeated = Deduplicator(2)
    assert [repeated.is_new(key) for key in ("a", "b", "a", "c")] == [True, True, False, True]
    assert not repeated.is_new("a")
    assert repeated.is_new("b")


def test_after_a_reset_every_key_is_new() -> None:
    """A failure after a success is logged, even if it equals the one before."""
    repeated = Deduplicator(2)
    assert repeated.is_new("a")
    repeated.reset()
    assert repeated.is_new("a")


def test_without_keys_only_the_first_message_is_new() -> None:
    """One filter for one message needs no keys."""
    repeated = Deduplicator()
    assert [repeated.is_new() for _ in range(3)] == [True, False, False]
