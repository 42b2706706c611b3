"""Deny changes of other processes' resource limits, with a seccomp filter.

prlimit with RLIMIT_CPU ends a process of the same user, with RLIMIT_NOFILE it stops it. Landlock
has no rule for it. Source: seccomp(2), prlimit(2), and the kernel's userspace-api/seccomp_filter.
"""

from __future__ import annotations

import ctypes
import errno
import platform

from operator_runner.ansible.libc import call

_PRLIMIT = {
    "x86_64": ((0xC000003E, 302), (0x40000003, 340)),
    "aarch64": ((0xC00000B7, 261), (0x40000028, 369)),
}
"""Architecture (AUDIT_ARCH_*) and number of prlimit64: of 64 and of 32 bits."""
_X32_BIT = 0x40000000
"""Set in the numbers of x86-64's system calls with pointers of 32 bits."""
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _PID, _NEW_LOW, _NEW_HIGH = 0, 4, 16, 32, 36
"""Offsets in `struct seccomp_data`: low half of the first argument, both of the third."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def restrict_prlimit() -> None:
    """Let this process, and all that it starts, change no limits but those of the caller.

    The caller is the pid 0; limits of others can still be read. Raises OSError: EOPNOTSUPP on
    other processors than x86-64 and arm64, EINVAL if the kernel has no seccomp filters, EACCES
    without CAP_SYS_ADMIN unless no_new_privs is set.
    """
    calls = _PRLIMIT.get(platform.machine())
    if calls is None:
        raise OSError(errno.EOPNOTSUPP, f"no filter for {platform.machine()}")
    instructions = _instructions(*calls)
    array = (_Instruction * len(instructions))(*(_Instruction(*each) for each in instructions))
    program = _Program(len(array), array)
    call("prctl", _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0, name="seccomp")


def _instructions(native: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, ...]]:
    """Return the program; the second and third number of a comparison are steps to skip."""
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 3, native[0]),
        (_LOAD, 0, 0, _NUMBER),
        (_AND, 0, 0, 0xFFFFFFFF ^ _X32_BIT),
        (_EQUAL, 3, 10, native[1]),
        (_EQUAL, 0, 9, other[0]),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 7, other[1]),
        (_LOAD, 0, 0, _PID),
        (_EQUAL, 5, 0, 0),
        (_LOAD, 0, 0, _NEW_LOW),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _NEW_HIGH),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _DENY),
        (_RETURN, 0, 0, _ALLOW),
    ]
