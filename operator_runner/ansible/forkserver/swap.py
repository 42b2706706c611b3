"""Swap out an idle fork server: its memory is sent to the operator until the next run.

Python cannot run while its memory is away, nor may the memory change between being sent and being
given back to the kernel. So all of it is one chain of calls into the C library, set up beforehand
with makecontext(3), which uses a stack and arguments of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import platform
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from operator_runner.ansible.libc import call
from operator_runner.ansible.process_tree import END_SIGNALS

REFUSED = 0
"""Size that is sent if the memory stays here."""
SIZE_BYTES = 8
"""Bytes of the size of the memory, in the byte order of the machine, which is sent first."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.__errno_location.restype = ctypes.c_void_p
_MACHINES = frozenset({"x86_64", "aarch64"})
"""Machines on which makecontext(3) of glibc passes arguments of 64 bits."""
_MIN_REGION_BYTES = 256 * 1024
"""Smaller regions stay; their sum is small, and the dynamic loader has its data in them."""
_THREAD_BYTES = 64 * 1024
"""Bytes before and after errno that stay: the C library has its data of the thread there."""
_NAMES = re.compile(r"$|\[heap\]|\[anon:")
"""What proc_pid_maps(5) shows for memory without a file, apart from the stack."""
_MAX_REGIONS = 256
"""Further regions stay; Python gets its memory in pieces of 1 MiB, which the kernel merges."""
_ATTEMPTS = 10


class Region(NamedTuple):
    """A range of addresses."""

    start: int
    size: int


class _Vector(ctypes.Structure):
    """The `iovec` of writev(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Stack(ctypes.Structure):
    """The `stack_t` of sigaltstack(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class _Context(ctypes.Structure):
    """The `ucontext_t` of getcontext(3); only the C library uses the rest, at most 5 KiB."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("link", ctypes.c_void_p),
        ("stack", _Stack),
        ("rest", ctypes.c_char * 8152),
    )


class _Step(ctypes.Structure):
    """A call of the chain, with a stack of its own."""

    _fields_ = (("context", _Context), ("stack", ctypes.c_char * (16 * 1024)))


class _Memory(ctypes.Structure):
    """All that the chain uses while the memory of Python is away."""

    _fields_ = (
        ("caller", _Context),
        ("steps", _Step * (4 + 3 * _MAX_REGIONS)),
        ("vectors", _Vector * (2 + _MAX_REGIONS)),
        ("size", ctypes.c_uint64),
    )


def is_supported() -> bool:
    """Return whether this is Linux with glibc on a machine that this module is written for."""
    return platform.machine() in _MACHINES and hasattr(_LIBC, "makecontext")


def swap_out(channel: socket.socket) -> bool:
    """Send the memory of this process, wait until it comes back, and go on with it.

    Only for a process without other threads. What is sent is a size in bytes and as much content,
    which has to be returned as it is. Returns False, and sends the size REFUSED, if the memory
    does not stay where it is. Meanwhile END_SIGNALS end the process at once and other signals wait.
    If the channel is closed, or sends or receives only a part, the process crashes.
    """
    # Too little address space, or no descriptor for the regions.
    with contextlib.suppress(OSError), _signals_wait():
        for _ in range(_ATTEMPTS):
            regions = _regions()
            # Shared, so that it is not among the regions. Only pages that are written use memory.
            with contextlib.closing(mmap.mmap(-1, ctypes.sizeof(_Memory))) as shared:
                memory = _Memory.from_buffer(shared)
                _prepare(memory, channel.fileno(), regions)
                # Twice: what the first look frees may be given back to the kernel after it.
                is_steady = _regions() == regions and _regions() == regions
                if is_steady:
                    call("swapcontext", ctypes.byref(memory.caller), ctypes.byref(memory.steps))
                del memory
                if is_steady:
                    return True
    refuse(channel)
    return False


def refuse(channel: socket.socket) -> None:
    """Send the size REFUSED: this process keeps its memory."""
    with contextlib.suppress(OSError):  # it has gone
        channel.sendall(REFUSED.to_bytes(SIZE_BYTES, sys.byteorder))


def _prepare(memory: _Memory, channel: int, regions: Sequence[Region]) -> None:
    """Write the calls: send everything, give it back to the kernel, receive it.

    A call may transfer less than everything: SIGSTOP or a frozen cgroup interrupts it, or the
    kernel has no memory. The sending end of the channel is closed, so that the other end does not
    wait for the rest. The context to go on with is received last: it is the right one only if all
    before it is in its place.
    """
    caller = Region(ctypes.addressof(memory.caller), ctypes.sizeof(_Context))
    memory.size = sum(region.size for region in (*regions, caller))
    own = Region(ctypes.addressof(memory) + _Memory.size.offset, SIZE_BYTES)
    sent = (own, *regions, caller)
    for vector, region in zip(memory.vectors, sent, strict=False):
        vector.start, vector.size = region
    vectors = ctypes.addressof(memory.vectors)
    calls: list[tuple[Any, ...]] = [
        (_LIBC.writev, channel, vectors, len(sent)),
        (_LIBC.shutdown, channel, socket.SHUT_WR),
        *((_LIBC.madvise, *region, mmap.MADV_DONTNEED) for region in regions),
        *((_LIBC.madvise, *region, mmap.MADV_HUGEPAGE) for region in regions),
        (_LIBC.madvise, *caller, mmap.MADV_REMOVE),  # as MADV_DONTNEED, for shared memory
        # The first one waits until there is a run.
        *((_LIBC.recv, channel, *region, socket.MSG_WAITALL) for region in (*regions, caller)),
    ]
    steps = memory.steps[: len(calls)]
    following = [*(step.context for step in steps[1:]), memory.caller]
    for step, context, (function, *arguments) in zip(steps, following, calls, strict=True):
        _prepare_step(step, context, function, arguments)


def _prepare_step(
    step: _Step, following: _Context, function: Any, arguments: Sequence[int]
) -> None:
    """Have a step call the function and go on with the following one."""
    call("getcontext", ctypes.byref(step.context))
    step.context.link = ctypes.addressof(following)
    step.context.stack.start = ctypes.addressof(step) + _Step.stack.offset
    step.context.stack.size = _Step.stack.size
    _LIBC.makecontext(
        ctypes.byref(step.context), function, len(arguments), *map(ctypes.c_long, arguments)
    )


def _regions() -> list[Region]:
    """Return the memory of this process without files, stack and the data of its thread."""
    thread = _LIBC.__errno_location()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    found = [
        part
        for region in map(_private_memory, maps.splitlines())
        if region is not None
        for part in _without(region, thread - _THREAD_BYTES, thread + _THREAD_BYTES)
        if part.size >= _MIN_REGION_BYTES
    ]
    return sorted(found, key=lambda region: region.size, reverse=True)[:_MAX_REGIONS]


def _private_memory(line: str) -> Region | None:
    """Return the region of a line of proc_pid_maps(5) if it is neither of a file nor the stack."""
    addresses, permissions, _offset, _device, inode, *names = line.split()
    if permissions != "rw-p" or inode != "0" or not _NAMES.match(" ".join(names)):
        return None
    start, end = (int(address, 16) for address in addresses.split("-"))
    return Region(start, end - start)


def _without(region: Region, start: int, end: int) -> Iterator[Region]:
    """Yield what remains of a region without the pages from `start` to `end`."""
    first, last = region.start, region.start + region.size
    below = start // mmap.PAGESIZE * mmap.PAGESIZE
    above = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
    if below >= last or above <= first:
        yield region
        return
    if first < below:
        yield Region(first, below - first)
    if above < last:
        yield Region(above, last - above)


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Block signals, and have END_SIGNALS end the process without Python."""
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in END_SIGNALS}
    waiting = signal.valid_signals() - set(END_SIGNALS)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
