"""A client that shows whether a server answers all the time."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


class Visitor:
    """Fetches over and over, each time with a new connection, and keeps what went wrong."""

    def __init__(self, url: str) -> None:
        self.answers = 0
        self.failures: list[str] = []
        self._url, self._ended = url, threading.Event()
        self._thread = threading.Thread(target=self._visit)

    @contextmanager
    def visiting(self) -> Iterator[Visitor]:
        """Fetch for as long as the context lasts."""
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()

    def _visit(self) -> None:
        while not self._ended.wait(0.02):
            try:
                with urllib.request.urlopen(self._url, timeout=10) as answer:
                    answer.read()
                self.answers += 1
            except OSError as error:
                self.failures.append(f"{time.strftime('%X')} {error!r}")
