"""Errors that a limit of the machine or container causes."""

from __future__ import annotations

import errno

import pytest

from operator_runner.core.errors import exhausted_resource


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk of the work dir is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory limit"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "pids.max"),
        (MemoryError(), "memory limit"),
        (RuntimeError("can't start new thread"), "pids.max"),
    ],
)
def test_an_error_of_a_limit_has_its_cure(error: BaseException, part: str) -> None:
    """By itself and as the cause of another error."""
    other = ValueError("cannot write")
    other.__cause__ = error
    for each in (error, other):
        assert part in (exhausted_resource(each) or "")


def test_other_errors_are_errors_of_the_program() -> None:
    """They have no cure for users."""
    for error in (OSError(errno.ENOENT, "No such file"), RuntimeError("x"), KeyError("a")):
        assert exhausted_resource(error) is None
