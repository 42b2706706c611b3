"""Memory for the frames of functions."""

from __future__ import annotations

import resource

from operator_runner.ansible.forkserver.forks import call_with_room

_DEPTHS = range(300)
_CALLS = 100


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _faults_at(depth: int) -> int:
    """Return how many pages a loop of calls touches for the first time, at this depth."""
    if depth:
        return _faults_at(depth - 1)
    before = _page_faults()
    for _ in range(_CALLS):
        _nothing()
    return _page_faults() - before


def _nothing() -> None:
    pass


# Larger than the frame of a recursion, so that one depth does not leave enough for it.
_nothing.__code__ = _nothing.__code__.replace(co_stacksize=100)


def _worst() -> int:
    call_with_room(lambda: [_faults_at(depth) for depth in _DEPTHS])  # touches all pages once
    return call_with_room(lambda: max(_faults_at(depth) for depth in _DEPTHS))


def test_calls_at_any_depth_get_no_memory_of_their_own() -> None:
    """Otherwise one depth has a page fault for each call."""
    assert _worst() < _CALLS


def test_the_result_of_the_function_is_returned() -> None:
    """Its exceptions pass as they are, too."""
    assert call_with_room(lambda: 7) == 7
