"""Deadlines that expire on demand of a test, not after a time that a busy machine exceeds."""

from __future__ import annotations

import asyncio


class Deadline:
    """The timeout of one run, in place of `asyncio.timeout`."""

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None

    def __call__(self, seconds: float | None) -> asyncio.Timeout:
        """Return the timeout to enter; it does not expire before the time that it has."""
        self._timeout = asyncio.timeout(seconds)
        return self._timeout

    def expire(self) -> None:
        """Let it expire now."""
        assert self._timeout is not None
        self._timeout.reschedule(asyncio.get_running_loop().time())
