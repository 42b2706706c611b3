"""The frame of a caller."""

from __future__ import annotations

import inspect

from ansible.module_utils._internal import _stack

from operator_runner.ansible.forkserver.results import caller_frame


def test_the_frame_is_that_of_ansible_core() -> None:
    """It has the file, line, function and positions that `inspect.stack` gives it."""

    def described() -> list[inspect.FrameInfo | None]:
        _skip_stackwalk = True
        return [caller_frame(), _stack.caller_frame()]

    ours, theirs = described()
    assert ours is not None
    assert theirs is not None
    assert ours.function == "test_the_frame_is_that_of_ansible_core"
    assert ours[:4] == theirs[:4]
    assert ours.positions == theirs.positions
