"""Room for the frames of Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SLOTS = 70_000
"""A frame of this many slots, 8 bytes each, needs a chunk of 1 MiB and leaves 460 KiB of it, which
is room for some 4,000 calls within calls."""


def call_with_room(function: Callable[[], T]) -> T:
    """Call the function with one piece of memory for the frames of all that it calls.

    CPython (3.11 and later) keeps frames in chunks of 16 KiB. It asks the kernel for the next chunk
    when a call does not fit, and gives it back when that call returns: a loop that calls from just
    below the boundary pays 40 µs for each call instead of 0.03 µs. Which loops of a play do depends
    on nothing but the depth of its stack. A frame that is larger than a chunk gets one of the next
    power of two, and the frames above it fill what it leaves; memory is used where it is touched.
    """
    return function()


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_SLOTS)
