"""When the processes of a run are born and die, seen by looking at /proc every 3 ms."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_EVERY = 0.003
"""Seconds; more often would slow down what is looked at."""


@dataclass(slots=True)
class Life:
    """A process: its parent, how deep below the one that is looked at, and when it was there."""

    pid: int
    parent: int
    depth: int
    begin: float
    end: float


@contextmanager
def descendants(pid: int) -> Iterator[dict[int, Life]]:
    """Give the lives of the descendants of `pid`; they are complete when the block is left."""
    lives: dict[int, Life] = {}
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(pid, lives, over))
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()


def _follow(pid: int, lives: dict[int, Life], over: threading.Event) -> None:
    while not over.wait(_EVERY):
        now = time.time()
        _look(pid, 1, now, lives)


def _look(pid: int, depth: int, now: float, lives: dict[int, Life]) -> None:
    for child in _children(pid):
        life = lives.setdefault(child, Life(child, pid, depth, now, now))
        life.end = now
        _look(child, depth + 1, now, lives)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(word) for word in text.split()]
    return []
