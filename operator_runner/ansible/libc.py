"""Calls of the C library that Python has no function for."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: object, name: str = "") -> int:
    """Call a function that returns -1 if it fails; return what it returns.

    Raises OSError, whose text has the `name` of what failed, else that of the function.
    """
    result = int(getattr(_LIBC, function)(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name or function}: {os.strerror(number)}")
    return result
