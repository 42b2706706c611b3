"""Terminate a child process of the operator, with its descendants, and read why it failed.

Not part of `process_tree`, because the fork server does not import asyncio, which takes 1.5 MiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import IO

from operator_runner.ansible.process_tree import end_descendants
from operator_runner.core.async_tasks import finish_in_thread


async def end_tree(process: asyncio.subprocess.Process, grace: float) -> None:
    """Terminate a child, which terminates its descendants; kill all after `grace` seconds."""
    _send_signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(grace):
            await process.wait()
    except TimeoutError:
        await finish_in_thread(end_descendants, process.pid, 0.0)
        _send_signal(process, signal.SIGKILL)
        await process.wait()


def last_line(errors: IO[bytes]) -> str:
    """Return the last line that a child has written to a file, its reason; empty without one."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a child, unless it has ended."""
    if process.returncode is not None:
        return  # another process may have its pid
    # Process.send_signal polls, which takes the exit status of a process that has just exited
    # from asyncio: wait() would return 255.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
