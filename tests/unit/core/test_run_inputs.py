"""Inputs of runs: digests that are the same in each process, and their stored form."""

from __future__ import annotations

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.run_inputs import (
    MAX_READS,
    Read,
    RunInputs,
    decode,
    digest_of,
    encode,
    list_version,
    object_version,
)

TEXT = st.text(max_size=20)
READS = st.dictionaries(st.builds(Read, TEXT, TEXT, TEXT), TEXT, max_size=20)


@given(st.builds(RunInputs, TEXT, READS))
def test_stored_inputs_are_read_back(inputs: RunInputs) -> None:
    """What is encoded is decoded to the same."""
    value = encode(inputs)
    assert value is not None
    assert decode(value) == inputs


@given(st.binary(max_size=200))
def test_other_values_are_no_inputs(value: bytes) -> None:
    """Values that somebody else has written are ignored."""
    assert decode(value) is None
    assert decode(zlib.compress(value)) is None


def test_inputs_beyond_the_limit_are_not_stored_or_read() -> None:
    """Neither many reads nor a long document fill the memory."""
    many = {Read("/api/v1/configmaps", str(number)): "" for number in range(MAX_READS + 1)}
    value = encode(RunInputs("x", many))
    assert value is not None
    assert decode(value) is None
    assert decode(zlib.compress(b" " * 10_000_000 + b"{}")) is None


def test_a_digest_does_not_depend_on_the_process() -> None:
    """The order of sets, which differs between processes, has no effect."""
    program = (
        "from operator_runner.core.run_inputs import digest_of;"
        "print(digest_of({'a': frozenset('abcdefgh'), 'b': [1, None, True]}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest_of({"b": [1, None, True], "a": frozenset("abcdefgh")})}


def test_lists_have_the_same_version_in_any_order() -> None:
    """A list changes with an object, not with the order of objects."""
    first, second = {"uid": "1", "resourceVersion": "5"}, {"uid": "2", "resourceVersion": "6"}
    assert list_version([first, second]) == list_version([second, first])
    assert list_version([first]) != list_version([first, second])
    assert object_version(first) != object_version(first | {"resourceVersion": "7"})
