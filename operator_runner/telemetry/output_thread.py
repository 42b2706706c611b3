"""Write log lines and the output of plays in a thread, so that a slow reader delays nothing else.

A write to a pipe that is not read (`kubectl logs` stopped, `| less`) blocks. Here only a thread
blocks. Records that do not fit into its queue are dropped, counted and reported. The output of
plays on stdout is the only text beside the log lines.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TextIO

import structlog

from operator_runner.core.texts import printable, redact, truncated, without_colours

_log = structlog.get_logger(__name__)

_LIMIT_BYTES = 4 * 1024 * 1024
"""Text that waits to be written; one record may be larger, if nothing else waits."""
_ATOMIC_BYTES = 4096
"""Bytes that a pipe accepts without blocking once poll(2) reports it writable: a page."""
_STALL_SECONDS = 1.0
"""Time that one stream delays other streams, to keep the order of their lines."""
_RETRY_SECONDS = 0.1
"""Poll interval while no stream can be written to."""
_FLUSH_SECONDS = 3.0
"""Time that the end of the process waits for text that is not yet written."""


class OutputWriter:
    """A bounded queue of text for file descriptors, and the thread that writes it in order."""

    def __init__(self, limit: int = _LIMIT_BYTES) -> None:
        """Take the number of bytes that may wait; nothing is started yet."""
        self._limit = limit
        self._waiting: dict[int, deque[tuple[int, memoryview]]] = {}
        self._size = 0
        self._sequence = 0
        self._closing = False
        self._changed = threading.Condition()
        self._stalled: set[int] = set()
        self._failed: set[int] = set()
        self._unreported = 0
        self.dropped = 0
        """Records that were not written, since the start."""
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, descriptor: int, text: str) -> None:
        """Queue text for a descriptor; never wait. Drop it if the queue is full."""
        data = text.encode("utf-8", "replace")
        with self._changed:
            if self._closing or (self._size and self._size + len(data) > self._limit):
                self._count_dropped()
                return
            self._sequence += 1
            self._size += len(data)
            records = self._waiting.setdefault(descriptor, deque())
            records.append((self._sequence, memoryview(data)))
            self._changed.notify()

    def close(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Write the queued records, for at most `seconds`; accept no more records."""
        # A report about dropped records is the last to be queued.
        ends = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(self._is_done, seconds)
            self._closing = True
            self._changed.notify()
        self._thread.join(max(ends - time.monotonic(), 0.0))

    @property
    def is_stuck(self) -> bool:
        """Whether unread text is left after `close`."""
        return self._thread.is_alive()

    def _is_done(self) -> bool:
        return not self._size and (not self._unreported or bool(self._failed))

    def _count_dropped(self) -> None:
        self.dropped += 1
        self._unreported += 1

    def _run(self) -> None:
        while self._wait():
            self._write_next()
            self._report()

    def _wait(self) -> bool:
        """Wait until there is something to write; False if there will be nothing more."""
        with self._changed:
            self._changed.wait_for(lambda: self._size or self._closing)
            return bool(self._size)

    def _write_next(self) -> None:
        descriptor = self._writable()
        if descriptor is None:
            return
        with self._changed:
            sequence, data = self._waiting[descriptor].popleft()
        try:
            written = os.write(descriptor, data[:_ATOMIC_BYTES])
        except OSError as error:
            self._fail(descriptor, len(data), error)
            return
        self._failed.discard(descriptor)
        with self._changed:
            self._size -= written
            if written < len(data):
                self._waiting[descriptor].appendleft((sequence, data[written:]))
            self._changed.notify_all()

    def _writable(self) -> int | None:
        """Return the descriptor whose text is the oldest; None if it has to be waited for."""
        with self._changed:
            heads = ((records[0][0], each) for each, records in self._waiting.items() if records)
            waiting = [descriptor for _, descriptor in sorted(heads)]
        if waiting[0] not in self._stalled:
            if _poll(waiting[:1], _STALL_SECONDS):
                return waiting[0]
            self._stalled.add(waiting[0])
        ready = _poll(waiting, _RETRY_SECONDS)
        self._stalled -= ready
        return next((descriptor for descriptor in waiting if descriptor in ready), None)

    def _fail(self, descriptor: int, size: int, error: OSError) -> None:
        """Drop a record that cannot be written: the reader has exited, or the disk is full."""
        with self._changed:
            self._size -= size
            self._count_dropped()
            self._changed.notify_all()
        if descriptor not in self._failed:
            self._failed.add(descriptor)
            _log.warning(
                "Cannot write log or output of a play", descriptor=descriptor, error=str(error)
            )

    def _report(self) -> None:
        """Log how many records are missing, once there is room again."""
        with self._changed:
            records = self._unreported
            if not records or self._failed or self._size > self._limit // 2:
                return
        _log.warning("Dropped log records: the reader is too slow", records=records)
        with self._changed:
            self._unreported -= records
            self._changed.notify_all()


_current: OutputWriter | None = None


@contextlib.contextmanager
def in_background() -> Iterator[OutputWriter]:
    """Write all log lines and output of plays in a thread while the block lasts."""
    global _current  # noqa: PLW0603 (logging is one for the process as well)
    writer = OutputWriter()
    writer.start()
    _current = writer
    try:
        yield writer
    finally:
        writer.close()
        if not writer.is_stuck:
            _current = None


def write(stream: TextIO, text: str) -> None:
    """Write text to a stream of the process: by the thread if there is one, else at once.

    Raises OSError only without the thread.
    """
    if _current is not None:
        _current.put(stream.fileno(), text)
        return
    stream.write(text)
    stream.flush()


def dropped_records() -> int:
    """Return how many log records were not written since the start of the process."""
    return _current.dropped if _current is not None else 0


def _poll(descriptors: list[int], seconds: float) -> set[int]:
    """Return those that can be written to, or can no longer be, within so many seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLOUT)
    return {descriptor for descriptor, _ in poll.poll(seconds * 1000)}


_PIECE_BYTES = 256 * 1024
"""Limit of one piece of output; all of it is in the artifacts of the run."""


def write_play_output(text: str) -> None:
    """Write text and a line break at once, without escape sequences and possible secrets.

    If stdout is closed, the run continues and the error is logged.
    """
    plain = without_colours(truncated(text, _PIECE_BYTES)).replace("\r\n", "\n")
    try:
        write(sys.stdout, printable(str(redact(plain))) + "\n")
    except OSError as error:
        _log.warning("Cannot write the output of a play", error=str(error))
