"""Landlock: rules that a process gives itself and what it starts, without any privilege.

Source: landlock(7), and the kernel's userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from operator_runner.execution.libc import call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
_PATH_BENEATH = 1
_READ_FILE = 1 << 2
_REFER = 1 << 13
"""To link or rename into another directory; denied by default, and known from Linux 5.19 on."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict(readable: Iterable[Path]) -> None:
    """Let this process, and all that it starts from now on, read files below these paths alone.

    Whatever the paths, none of these processes may look into another process that is not one of
    them (environment, memory, descriptors in /proc), or mount anything. What they could write,
    list and execute before, they still can. Raises OSError: ENOSYS or EOPNOTSUPP if the kernel
    has no Landlock, EINVAL if it is older than 5.19, EPERM without CAP_SYS_ADMIN unless
    no_new_privs is set.
    """
    handled = _Ruleset(_READ_FILE | _REFER)
    ruleset = _syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    try:
        for path in readable:
            _allow(ruleset, path)
        _syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path) -> None:
    try:
        below = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # it has gone meanwhile
    try:
        access = _READ_FILE | _REFER if path.is_dir() else _READ_FILE
        rule = _PathBeneath(access, below)
        _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(below)


def _syscall(number: int, *arguments: object) -> int:
    return call("syscall", ctypes.c_long(number), *arguments)
