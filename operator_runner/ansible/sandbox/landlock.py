"""Restrict this process and its children with Landlock, which needs no privileges.

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
"""System call numbers, equal on all architectures."""
_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
"""Link or rename into another directory: denied by default, since ABI version 2."""
_TRUNCATE = 1 << 14
_TRUNCATE_ABI = 3
_SCOPE_SIGNAL = 1 << 1
_SCOPE_ABI = 6
"""ABI version of Linux 6.12."""


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
    _layout_ = "ms"  # since Python 3.14 a packed structure has to name it
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict(usable: Iterable[str], readable: Iterable[str] = ()) -> None:
    """Restrict this process, and all that it starts from now on, to files below these paths.

    Files below `usable` can be read, written, created and removed as before, files below
    `readable` can be read, and directories below both can be listed; everything can be executed as
    before. For any paths, these
    processes can neither access other processes (environment, memory, descriptors in /proc) nor
    mount anything. Raises OSError: ENOSYS or EOPNOTSUPP if the kernel has no Landlock, EINVAL if
    it is older than 5.19, EPERM without CAP_SYS_ADMIN unless no_new_privs is set.
    """
    file_access = _READ_FILE | _WRITE_FILE
    if _abi_version() >= _TRUNCATE_ABI:
        file_access |= _TRUNCATE
    all_access = file_access | _READ_DIR | _REMOVE_AND_MAKE | _REFER
    ruleset = _create(_Ruleset(all_access))
    try:
        for path in usable:
            _allow(ruleset, path, all_access, file_access)
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _READ_DIR, _READ_FILE)
        _syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def scope_signals(*, paths_follow: bool) -> None:
    """Prevent this process, and all that it starts from now on, from signalling other processes.

    Applies to kill (also of -1), tgkill and pidfd_send_signal. Others can send them signals as
    before. These processes cannot access other processes. They can mount as before unless
    `paths_follow`, which is required if `restrict` is called afterwards. Raises OSError: ENOSYS or
    EOPNOTSUPP without Landlock or before Linux 6.12, EPERM without CAP_SYS_ADMIN unless
    no_new_privs is set.
    """
    if _abi_version() < _SCOPE_ABI:
        raise OSError(errno.EOPNOTSUPP, "signal scopes require Linux 6.12")
    # Combined with path rules, a ruleset denies linking and renaming into another directory unless
    # it allows that; and a ruleset with any path rule denies mounting.
    ruleset = _create(_Scope(_REFER if paths_follow else 0, 0, _SCOPE_SIGNAL))
    try:
        if paths_follow:
            _allow(ruleset, "/", _REFER, _REFER)
        _syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _abi_version() -> int:
    return _syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION)


def _create(ruleset: ctypes.Structure) -> int:
    size = ctypes.c_size_t(ctypes.sizeof(ruleset))
    return _syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(ruleset), size, 0)


def _allow(ruleset: int, path: str, directory_access: int, file_access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing or inaccessible path needs no rule
    try:
        is_directory = stat.S_ISDIR(os.fstat(opened).st_mode)
        rule = _PathBeneath(directory_access if is_directory else file_access, opened)
        _syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(opened)


def _syscall(name: str, number: int, *arguments: object) -> int:
    return call("syscall", ctypes.c_long(number), *arguments, name=name)
