"""Deny system calls by which a process reaches others of its user, with a seccomp filter.

Landlock has no rule for them: prlimit with RLIMIT_CPU ends a process of the same user, with
RLIMIT_NOFILE it stops it; inotify shows the names of directories that a run may not list; a lease
on a file that others read delays each of their `open` by 45 seconds; an ACL that new files inherit
takes them away from their owner. io_uring would do some of it past the filter.
Source: seccomp(2), prlimit(2), inotify(7), fcntl(2), and the kernel's userspace-api/seccomp_filter.
"""

from __future__ import annotations

import ctypes
import errno
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operator_runner.ansible.libc import call


@dataclass(frozen=True, slots=True)
class _Calls:
    """Numbers of system calls of an architecture (AUDIT_ARCH_*)."""

    architecture: int
    prlimit: int
    fcntl: Sequence[int]
    watches: Sequence[int]
    """inotify_add_watch and fanotify_mark."""
    attributes: Sequence[int]
    """setxattr, lsetxattr, fsetxattr."""


_NEW = {"setxattrat": 463, "io_uring_setup": 425}
"""Numbers that all architectures have in common."""
_CALLS = {
    "x86_64": (
        _Calls(0xC000003E, 302, (72,), (254, 301), (188, 189, 190)),
        _Calls(0x40000003, 340, (55, 221), (292, 339), (226, 227, 228)),
    ),
    "aarch64": (
        _Calls(0xC00000B7, 261, (25,), (27, 263), (5, 6, 7)),
        _Calls(0x40000028, 369, (55, 221), (317, 368), (226, 227, 228)),
    ),
}
"""By machine: of 64 and of 32 bits."""
_X32_BIT = 0x40000000
"""Set in the numbers of x86-64's system calls with pointers of 32 bits."""
_F_SETLEASE = 1024
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _PID, _COMMAND, _NEW_LOW, _NEW_HIGH = 0, 4, 16, 24, 32, 36
"""Offsets in `struct seccomp_data`: low half of the first two arguments, both of the third."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def restrict_calls() -> None:
    """Deny the calls to this process and all that it starts.

    It can change its own limits, which are those of the pid 0, and read those of others. Raises
    OSError: EOPNOTSUPP on other processors than x86-64 and arm64, EINVAL if the kernel has no
    seccomp filters, EACCES without CAP_SYS_ADMIN unless no_new_privs is set.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.EOPNOTSUPP, f"no filter for {platform.machine()}")
    instructions = _instructions(calls)
    array = (_Instruction * len(instructions))(*(_Instruction(*each) for each in instructions))
    program = _Program(len(array), array)
    call("prctl", _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0, name="seccomp")


def _instructions(calls: Sequence[_Calls]) -> list[tuple[int, ...]]:
    """Return the program; the second and third number of a comparison are steps to skip."""
    program: list[tuple[int, ...]] = []
    for each in calls:
        block = _block(each)
        program += [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 0, len(block), each.architecture)]
        program += block
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _block(calls: _Calls) -> list[tuple[int, ...]]:
    """Return the program for the calls of an architecture."""
    answers: Mapping[int, int] = {
        **dict.fromkeys([*calls.watches, _NEW["io_uring_setup"]], errno.EPERM),
        # What file systems without attributes answer: programs that copy files go on.
        **dict.fromkeys([*calls.attributes, _NEW["setxattrat"]], errno.EOPNOTSUPP),
    }
    block: list[tuple[int, ...]] = [(_LOAD, 0, 0, _NUMBER), (_AND, 0, 0, 0xFFFFFFFF ^ _X32_BIT)]
    for number, answer in answers.items():
        block += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | answer)]
    for number in calls.fcntl:
        block += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _COMMAND),
            (_EQUAL, 0, 1, _F_SETLEASE),
            (_RETURN, 0, 0, _ERROR | errno.EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [
        *block,
        (_EQUAL, 0, 7, calls.prlimit),
        (_LOAD, 0, 0, _PID),
        (_EQUAL, 5, 0, 0),
        (_LOAD, 0, 0, _NEW_LOW),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _NEW_HIGH),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
