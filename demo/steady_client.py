"""A client that fetches a page without pause, to count requests that fail during an upgrade."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.client import HTTPException
from types import TracebackType
from typing import Self

from demo.fetch import fetch

_PAUSE_SECONDS = 0.05
"""Seconds between two requests, each on a connection of its own."""
_ANSWER_SECONDS = 30.0
"""Seconds after which a request has failed; an answer of a busy machine takes some."""


class SteadyClient:
    """Fetches inside of a `with` block, in a thread of its own."""

    def __init__(self, url: str) -> None:
        """Name the page; the first request is made when the block begins."""
        self.fetched = 0
        self.failures: list[str] = []
        self._url, self._ended = url, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End after the current request."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            try:
                answer = fetch(self._url, _ANSWER_SECONDS)
            except (OSError, HTTPException) as error:
                self.failures.append(str(error) or type(error).__name__)
                continue
            if answer.status == HTTPStatus.OK:
                self.fetched += 1
            else:
                self.failures.append(f"HTTP {answer.status}")
