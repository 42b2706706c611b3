"""What a fork does to be a program of its own: begin with fresh streams, end as one ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from typing import NoReturn


def open_streams() -> None:
    """Make Python's standard streams anew over descriptors 0, 1 and 2."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115


def exit_status(code: object) -> int:
    """Return the exit status that the interpreter gives a SystemExit's code; say a text."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201 (as the interpreter does)
    return 1


def end_process(status: int) -> NoReturn:
    """Exit as an interpreter does: threads joined, exit functions run, output flushed."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:  # noqa: BLE001 (nobody is left to tell)
        traceback.print_exc()
        status = status or 120
    os._exit(status)
