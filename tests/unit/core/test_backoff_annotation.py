"""States of backoff and throttling are read as they were written; anything else is ignored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.slot_assignment import (
    MAX_STATES,
    BackoffState,
    bounded,
    decode_states,
    encode_states,
)

COUNTS = st.integers(0, 1000)
STATES = st.builds(BackoffState, COUNTS, COUNTS).filter(lambda s: s != BackoffState())
UID = "9fd5d1bd-0d0e-4a3e-a6f3-0a8d6f1f1c11"


@given(st.dictionaries(st.uuids().map(str), STATES, max_size=9))
def test_states_are_read_as_they_were_written(states: dict[str, BackoffState]) -> None:
    """They are an annotation of a Lease."""
    assert decode_states(encode_states(states)) == states


def test_without_states_there_is_no_annotation() -> None:
    """Most moves are of resources that nothing delays."""
    assert encode_states({}) == ""
    assert decode_states("") == {}


def test_only_counts_above_zero_are_written() -> None:
    """The annotation of a thousand resources stays far below the limit of 256 KiB."""
    assert encode_states({UID: BackoffState(3)}) == f'{{"{UID}":{{"failures":3}}}}'
    most = {f"{number:036}": BackoffState(10**6, 10**6) for number in range(MAX_STATES)}
    assert len(encode_states(most)) < 128 * 1024


def test_of_too_many_resources_those_with_the_longest_delays_are_kept() -> None:
    """An annotation has a limit."""
    states = {str(number): BackoffState(failures=number) for number in range(1, MAX_STATES + 11)}

    assert bounded(states) == {str(n): states[str(n)] for n in range(11, MAX_STATES + 11)}
    text = json.dumps({uid: {"failures": state.failures} for uid, state in states.items()})
    assert len(decode_states(text)) == MAX_STATES


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "[]",
        "null",
        "[" * 9999,
        "1" * 9999,
        '{"a": 3}',
        '{"a": {"failures": "3"}}',
        '{"a": {"failures": -3}}',
        '{"a": {"failures": true}}',
        '{"a": {"failures": 1e400}}',
        '{"a": {"others": 3}}',
    ],
)
def test_what_is_not_a_state_is_ignored(text: str) -> None:
    """Resources begin without delays then, as after a restart."""
    assert decode_states(text) == {}


def test_a_count_is_limited() -> None:
    """Delays are powers of it."""
    assert decode_states('{"a": {"failures": 1%s}}' % ("0" * 99)) == {"a": BackoffState(10**6)}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """A user may have edited it."""
    decode_states(text)
