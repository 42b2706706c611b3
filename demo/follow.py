"""Show the log lines of the operator about one object as they are written."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from demo.background import find
from demo.errors import DemoError
from demo.record import Process

_POLL_SECONDS = 0.1
_END = {"Reconciled": True, "Reconciliation failed": False}


def follow_run(console: Console, log: Path, subject: str, process: Process, seconds: float) -> bool:
    """Print the records about `subject` until its run has ended; return True if it succeeded."""
    mark = f" {subject}: "
    for record in _records(log, process, seconds):
        first, *_ = record.split("\n")
        _, found, message = first.partition(mark)
        if not found:
            continue
        ended = next((good for text, good in _END.items() if message.startswith(text)), None)
        console.print(Text(record, style=_style(first, ended)), soft_wrap=True)
        if ended is not None:
            return ended
    raise DemoError(f"{subject} was not reconciled within {seconds:.0f} s", log=log)


def _style(line: str, ended: bool | None) -> str:
    if ended is not None:
        return "bold green" if ended else "bold red"
    return "red" if " failed" in line else "yellow" if "result=changed" in line else ""


def _records(log: Path, process: Process, seconds: float) -> Iterator[str]:
    """Give complete records, old ones and new ones, until `seconds` have passed.

    A record is a line, and the indented lines below it; the operator writes it at once.
    """
    deadline = time.monotonic() + seconds
    with log.open(errors="replace") as stream:
        rest = ""
        while time.monotonic() < deadline:
            text = stream.read()
            if text:
                complete, _, rest = (rest + text).rpartition("\n")
                yield from re.split(r"\n(?=\S)", complete)
            elif find(process) is None:
                raise DemoError("The operator has ended in the middle of the run", log=log)
            else:
                time.sleep(_POLL_SECONDS)
