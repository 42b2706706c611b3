"""Call functions of the C library that Python does not wrap."""

from __future__ import annotations

import contextlib
import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: object, name: str = "") -> int:
    """Call a function that returns -1 on failure; return its result.

    Raises OSError with errno; its text starts with `name`, by default the function's.
    """
    result = int(getattr(_LIBC, function)(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name or function}: {os.strerror(number)}")
    return result


def trim_heap() -> None:
    """Return unused heap to the kernel.

    Source: malloc_trim(3); other C libraries have no such function.
    """
    with contextlib.suppress(AttributeError):
        _LIBC.malloc_trim(0)
