"""Drop the capabilities with which root bypasses Landlock and mount namespaces.

Source: capabilities(7), capset(2). Regardless of Landlock, CAP_PERFMON and CAP_SYS_ADMIN give
read access to the environment of every process, CAP_DAC_READ_SEARCH opens files by inode number,
and CAP_SYS_RAWIO reads all memory.
"""

from __future__ import annotations

import ctypes
import errno

from operator_runner.ansible.libc import call

_DAC_READ_SEARCH, _SYS_RAWIO, _SYS_ADMIN, _PERFMON = 2, 17, 21, 38
_DROPPED = (_DAC_READ_SEARCH, _SYS_RAWIO, _SYS_ADMIN, _PERFMON)
_VERSION = 0x20080522
_PR_CAPBSET_DROP = 24
_SETS = ("effective", "permitted", "inheritable")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Word(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in _SETS)


def drop() -> None:
    """Drop them permanently in this process and its children.

    A process with none of them is left unchanged. Raises OSError, EPERM without CAP_SETPCAP.
    """
    header, words = _Header(_VERSION, 0), (_Word * 2)()
    call("capget", ctypes.byref(header), words)
    if not any(words[number // 32].permitted & 1 << number % 32 for number in _DROPPED):
        return
    for number in _DROPPED:
        _drop_from_bounding_set(number)
        word = words[number // 32]
        for name in _SETS:
            setattr(word, name, getattr(word, name) & ~(1 << number % 32))
    call("capset", ctypes.byref(header), words)


def _drop_from_bounding_set(number: int) -> None:
    try:
        call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    except OSError as error:
        # Kernels before 5.8 have no CAP_PERFMON; CAP_SYS_ADMIN includes it there.
        if error.errno != errno.EINVAL:
            raise
