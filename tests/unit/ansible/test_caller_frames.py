"""Frames of callers, one by one."""

from __future__ import annotations

import inspect

from ansible.module_utils._internal import _stack

from operator_runner.ansible.forkserver.caller_frames import iter_frames


def test_the_frames_are_those_of_ansible_core() -> None:
    """Each frame has the file, line and function that `inspect.stack` gives it."""

    def described() -> list[list[inspect.FrameInfo]]:
        return [list(iter_frames()), list(_stack.iter_stack())]

    ours, theirs = described()
    assert [frame[1:4] for frame in ours] == [frame[1:4] for frame in theirs]
    assert [frame.positions for frame in ours[1:]] == [frame.positions for frame in theirs[1:]]


def test_marked_functions_are_no_callers() -> None:
    """The first frame is that of the function that calls a marked one."""

    def marked() -> inspect.FrameInfo:
        _skip_stackwalk = True
        return next(iter_frames())

    assert marked().function == "test_marked_functions_are_no_callers"
