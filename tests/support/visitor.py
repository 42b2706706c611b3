"""A client that shows whether a server answers all the time."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

from tests.support.waiting import eventually


class Visitor:
    """Fetches over and over, each time with a new connection, and keeps what went wrong."""

    def __init__(self, url: str) -> None:
        self.answers = 0
        self.failures: list[str] = []
        self._url, self._ended = url, threading.Event()
        self._thread = threading.Thread(target=self._visit)

    @contextmanager
    def visiting(self) -> Iterator[Visitor]:
        """Fetch for as long as the context lasts, from the first answer on."""
        # kube-proxy routes to the Pods of a new Service a moment after they are ready.
        eventually(self._fetch, lambda error: error is None)
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()

    def _visit(self) -> None:
        while not self._ended.wait(0.02):
            if (error := self._fetch()) is None:
                self.answers += 1
            else:
                self.failures.append(f"{time.strftime('%X')} {error!r}")

    def _fetch(self) -> Exception | None:
        """Fetch once; return what went wrong."""
        try:
            with urllib.request.urlopen(self._url, timeout=30) as answer:
                answer.read()
        except (OSError, HTTPException) as error:
            return error
        return None
