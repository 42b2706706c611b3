"""Make forks behave as programs of their own: signals, new streams, exit; room for frames."""

from __future__ import annotations

import atexit
import gc
import io
import multiprocessing.process
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from operator_runner.ansible.process_tree import END_SIGNALS


@dataclass(frozen=True, slots=True)
class _StreamSettings:
    """Settings that the interpreter chose for a stream when it started this program."""

    encoding: str
    errors: str | None
    write_through: bool


def _settings_of(stream: Any) -> _StreamSettings:
    return _StreamSettings(stream.encoding, stream.errors, stream.write_through)


# Read before any library is loaded: ansible-core changes them.
_CHOSEN = tuple(map(_settings_of, (sys.__stdin__, sys.__stdout__, sys.__stderr__)))


def fork() -> int:
    """Fork as `os.fork` does; signals that end it have their default effect in the child at once.

    Python discards signals that reach a child before its code runs (PyOS_AfterFork_Child). A child
    that is terminated right after the fork would then continue.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        pid = os.fork()
        if not pid:
            for number in END_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_process() -> None:
    """Give a process of `fork` what a program starts with: streams, signals, no exit functions.

    SIGHUP is ignored, as ansible-runner has it for all that it starts. Garbage is collected
    less often than in a new program, because most loaded objects stay.
    """
    atexit._clear()
    # What its parent is to release.
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    _finalize_at_exit()
    _join_children_at_exit()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.set_threshold(20_000, 20, 20)
    open_streams()


def _finalize_at_exit() -> None:
    """Register the exit function of `weakref.finalize`, which registers it only once itself."""
    weakref.finalize._registered_with_atexit = True  # type: ignore[attr-defined]
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]


def _join_children_at_exit() -> None:
    """Register the exit function of `multiprocessing`, which registers it only once itself.

    It waits for the workers of a play: one that is still ending would pass for a process that
    outlives the run.
    """
    multiprocessing.process._children = set()  # type: ignore[attr-defined]  # of the parent
    atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]


def open_streams() -> None:
    """Create Python's standard streams over descriptors 0, 1 and 2, as an interpreter does.

    Encoding and errors are those that the interpreter chose when it started.
    """
    sys.stdin = _stream(0, "<stdin>", "r")
    sys.stdout = _stream(1, "<stdout>", "w")
    sys.stderr = _stream(2, "<stderr>", "w")


def _stream(number: int, name: str, mode: str) -> io.TextIOWrapper:
    chosen = _CHOSEN[number]
    unbuffered = chosen.write_through and mode == "w"
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = name
    binary = raw if unbuffered else (io.BufferedReader if mode == "r" else io.BufferedWriter)(raw)
    stream = io.TextIOWrapper(
        binary,
        encoding=chosen.encoding,
        errors=chosen.errors,
        newline="\n" if mode == "w" else None,
        line_buffering=not unbuffered and (number == 2 or raw.isatty()),  # noqa: PLR2004
        write_through=chosen.write_through,
    )
    stream.mode = mode  # type: ignore[misc]
    return stream


@contextmanager
def redirected(descriptor: int, target: int) -> Iterator[None]:
    """Make a descriptor of this process a copy of another one within the block.

    Programs inherit the copy. Whether they inherit the original is as before afterwards.
    """
    is_inheritable = os.get_inheritable(descriptor)
    kept = os.dup(descriptor)
    try:
        os.dup2(target, descriptor)
        yield
    finally:
        os.dup2(kept, descriptor, is_inheritable)
        os.close(kept)


@contextmanager
def captured_output() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Collect what this process writes to `sys.stdout` and `sys.stderr` within the block."""
    before = sys.stdout, sys.stderr
    buffers = io.BytesIO(), io.BytesIO()
    streams = sys.stdout, sys.stderr = [
        io.TextIOWrapper(buffer, chosen.encoding, chosen.errors, newline="\n", write_through=True)
        for buffer, chosen in zip(buffers, _CHOSEN[1:], strict=True)
    ]
    try:
        yield buffers
    finally:
        # The wrappers would close the buffers.
        for stream in streams:
            stream.detach()
        sys.stdout, sys.stderr = before


def use_environment(environment: dict[str, str]) -> None:
    """Replace the environment, and everything that was derived from the former."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    time.tzset()


def exit_status(code: object) -> int:
    """Return the exit status that the interpreter gives a SystemExit's code; print a text."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201 (as the interpreter does)
    return 1


def end_process(status: int) -> NoReturn:
    """Exit as an interpreter does."""
    os._exit(finish_process(status))


def finish_process(status: int) -> int:
    """Do what an interpreter does before it exits; return the status to exit with.

    Output is flushed, threads are joined, exit functions run.
    """
    try:
        _flush()
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        _flush()
    except BaseException:  # noqa: BLE001 (the last line of a process)
        traceback.print_exc()
        status = status or 120
    return status


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


_T = TypeVar("_T")

_SLOTS = 70_000
"""A frame of this many slots, 8 bytes each, needs a chunk of 1 MiB and leaves 460 KiB of it, which
is room for some 4,000 calls within calls."""


def call_with_room(function: Callable[[], _T]) -> _T:
    """Call the function with one piece of memory for the frames of all that it calls.

    CPython (3.11 and later) keeps frames in chunks of 16 KiB. It asks the kernel for the next chunk
    when a call does not fit, and gives it back when that call returns: a loop that calls from just
    below the boundary pays 40 µs for each call instead of 0.03 µs. Which loops of a play do depends
    on nothing but the depth of its stack. A frame that is larger than a chunk gets one of the next
    power of two, and the frames above it fill what it leaves; memory is used where it is touched.
    """
    return function()


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_SLOTS)
