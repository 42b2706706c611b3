"""Ask the user at the terminal, between the lines of the log."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from operator_runner.telemetry import output_thread

_MAX_LINE_BYTES = 4096


async def ask(question: str) -> str:
    """Print a question to standard error, and return the line that the user enters.

    The end of the input (Ctrl-D) interrupts the operator, as Ctrl-C does.
    """
    # By the same way as the log, so that it comes after the lines of earlier tasks.
    output_thread.write(sys.stderr, f"{question} ")
    readable = asyncio.Event()
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    line = os.read(descriptor, _MAX_LINE_BYTES)
    if not line:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()  # until this task is cancelled
    return line.decode(errors="replace").strip()
