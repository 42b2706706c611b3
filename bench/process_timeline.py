"""Record start and end of a run's processes by polling /proc every 3 ms."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_SECONDS = 0.003
"""Polling interval; a shorter one slows down the observed processes."""


@dataclass(slots=True)
class ProcessLifetime:
    """A process: parent, depth below the observed process, first and last observation."""

    pid: int
    parent: int
    depth: int
    begin: float
    end: float


@contextmanager
def descendants(pid: int) -> Iterator[dict[int, ProcessLifetime]]:
    """Record the lifetimes of the descendants of `pid` until the block ends."""
    lifetimes: dict[int, ProcessLifetime] = {}
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(pid, lifetimes, over))
    thread.start()
    try:
        yield lifetimes
    finally:
        over.set()
        thread.join()


def _follow(pid: int, lifetimes: dict[int, ProcessLifetime], over: threading.Event) -> None:
    while not over.wait(_INTERVAL_SECONDS):
        now = time.time()
        _look(pid, 1, now, lifetimes)


def _look(pid: int, depth: int, now: float, lifetimes: dict[int, ProcessLifetime]) -> None:
    for child in _children(pid):
        lifetime = lifetimes.setdefault(child, ProcessLifetime(child, pid, depth, now, now))
        lifetime.end = now
        _look(child, depth + 1, now, lifetimes)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(word) for word in text.split()]
    return []
