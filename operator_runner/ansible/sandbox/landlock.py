"""Landlock: rules that a process gives itself and what it starts, without any privilege.

Source: landlock(7), and the kernel's userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable

from operator_runner.ansible.libc import call

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE = 1 << 1, 1 << 2
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
"""To link or rename into another directory; denied by default, and known from version 2 on."""
_TRUNCATE = 1 << 14
_KNOWS_TRUNCATE = 3
_SCOPE_SIGNAL = 1 << 1
_KNOWS_SCOPES = 6
"""Since Linux 6.12."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Scope(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict(usable: Iterable[str], readable: Iterable[str] = ()) -> None:
    """Let this process, and all that it starts from now on, use files below these paths alone.

    Of what is `usable` files are read, written, made and removed as before, of what is
    `readable` they are read; everything can be listed and executed as before. Whatever the paths,
    none of these processes may look into another process that is not one of them (environment,
    memory, descriptors in /proc), or mount anything. Raises OSError: ENOSYS or EOPNOTSUPP if the
    kernel has no Landlock, EINVAL if it is older than 5.19, EPERM without CAP_SYS_ADMIN unless
    no_new_privs is set.
    """
    of_files = _READ_FILE | _WRITE_FILE
    if _version() >= _KNOWS_TRUNCATE:
        of_files |= _TRUNCATE
    every = of_files | _REMOVE_AND_MAKE | _REFER
    ruleset = _create(_Ruleset(every))
    try:
        for path in usable:
            _allow(ruleset, path, every, of_files)
        for path in readable:
            _allow(ruleset, path, _READ_FILE, _READ_FILE)
        _syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def scope_signals(*, paths_follow: bool) -> None:
    """Let this process, and all that it starts from now on, send signals among themselves alone.

    Whatever the call: kill, also of -1, tgkill, pidfd_send_signal. Others can send them signals as
    before. None of these processes may look into one that is not one of them. They can mount as
    before unless `paths_follow`, which has to be given where `restrict` is called afterwards.
    Raises OSError: ENOSYS or EOPNOTSUPP without Landlock or before Linux 6.12, EPERM without
    CAP_SYS_ADMIN unless no_new_privs is set.
    """
    if _version() < _KNOWS_SCOPES:
        raise OSError(errno.EOPNOTSUPP, "scopes of signals take Linux 6.12")
    # Beside rules for paths, every ruleset denies to link or rename into another directory, unless
    # that is allowed; and a ruleset with any rule for paths forbids to mount.
    ruleset = _create(_Scope(_REFER if paths_follow else 0, 0, _SCOPE_SIGNAL))
    try:
        if paths_follow:
            _allow(ruleset, "/", _REFER, _REFER)
        _syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _version() -> int:
    return _syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION)


def _create(ruleset: ctypes.Structure) -> int:
    size = ctypes.c_size_t(ctypes.sizeof(ruleset))
    return _syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(ruleset), size, 0)


def _allow(ruleset: int, path: str, below_a_folder: int, of_a_file: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what has gone, or may not be opened, needs no rule
    try:
        is_folder = stat.S_ISDIR(os.fstat(opened).st_mode)
        rule = _PathBeneath(below_a_folder if is_folder else of_a_file, opened)
        _syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(opened)


def _syscall(name: str, number: int, *arguments: object) -> int:
    return call("syscall", ctypes.c_long(number), *arguments, name=name)
