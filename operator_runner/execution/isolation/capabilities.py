"""Give up the capabilities with which root reads what Landlock keeps from other processes.

Source: capabilities(7), capset(2). The kernel shows the environment of every process to who may
profile them all (CAP_PERFMON), whatever Landlock says.
"""

from __future__ import annotations

import ctypes
import errno

from operator_runner.execution.libc import call

_SYS_ADMIN, _PERFMON = 21, 38
_VERSION = 0x20080522
_PR_CAPBSET_DROP = 24
_SETS = ("effective", "permitted", "inheritable")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Word(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in _SETS)


def drop() -> None:
    """Give up CAP_SYS_ADMIN and CAP_PERFMON, in this process and all that it starts, for good.

    Nothing happens in a process that has neither. Raises OSError.
    """
    header, words = _Header(_VERSION, 0), (_Word * 2)()
    call("capget", ctypes.byref(header), words)
    if not any(
        words[number // 32].permitted & 1 << number % 32 for number in (_SYS_ADMIN, _PERFMON)
    ):
        return
    for number in (_SYS_ADMIN, _PERFMON):
        _drop_from_bounding_set(number)
        word = words[number // 32]
        for name in _SETS:
            setattr(word, name, getattr(word, name) & ~(1 << number % 32))
    call("capset", ctypes.byref(header), words)


def _drop_from_bounding_set(number: int) -> None:
    try:
        call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    except OSError as error:
        # A kernel before 5.8 does not know CAP_PERFMON, and CAP_SYS_ADMIN stands for it.
        if error.errno != errno.EINVAL:
            raise
