"""Readiness of the watches: which of them the API server has accepted. Pure bookkeeping.

It is logged when all kinds are watched, and what delays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

import structlog

from operator_runner.core.deduplication import Deduplicator


class WatchReadiness:
    """Compares the required watches with those that were accepted."""

    def __init__(self, kinds: Iterable[str], converted: Iterable[str] = ()) -> None:
        """Start with kinds whose paths are unknown, because their CRDs may be missing.

        Kinds `converted` by this process are not waited for: to list objects of an older version,
        the API server calls its webhook, and OLM's Service routes to ready replicas only.
        """
        self._required: dict[str, frozenset[str] | None] = dict.fromkeys(kinds)
        self._converted = frozenset(converted)
        self._started: set[str] = set()
        self._interrupted: dict[str, None] = {}

    def require(self, kind: str, paths: Iterable[str]) -> None:
        """Set the URL paths on which a kind is watched."""
        self._required[kind] = frozenset(paths)

    def kind_removed(self, kind: str) -> None:
        """Record that the API server no longer serves a kind."""
        for path in self._required.get(kind) or ():
            self.watch_ended(path, again=False)
        self._required[kind] = None

    def watch_started(self, path: str) -> None:
        """Record that the API server accepted a watch on this path."""
        self._started.add(path)
        self._interrupted.pop(path, None)

    def watch_ended(self, path: str, again: bool) -> None:
        """Record that a watch on this path has ended; `again` if it is restarted at once."""
        if not again:
            self._started.discard(path)
            self._interrupted.pop(path, None)
        elif path in self._started:
            self._interrupted[path] = None

    def not_ready_reason(self) -> str | None:
        """Return which kind or watch is missing or interrupted, for display; None if ready."""
        if missing := self.missing_kinds():
            return f"{missing[0]} is not served by the API server: install its CRD"
        return self.not_watched_reason()

    def missing_kinds(self) -> list[str]:
        """Return the kinds whose paths are unknown."""
        return [kind for kind, paths in self._required.items() if paths is None]

    def not_watched_reason(self) -> str | None:
        """Return which watch of a served kind is missing or interrupted; None if none is."""
        for kind, paths in self._required.items():
            if paths is not None and kind not in self._converted and not paths <= self._started:
                return f"{kind} is not watched yet on {', '.join(sorted(paths - self._started))}"
        of_converted = {path for kind in self._converted for path in self._required.get(kind) or ()}
        if interrupted := [path for path in self._interrupted if path not in of_converted]:
            return f"the watch of {', '.join(interrupted)} has ended and is being restarted"
        return None


_log = structlog.get_logger(__name__)
_POLL_SECONDS = 1.0
_DELAYED_POLLS = 3
"""Polls after which a watch that is not established is reported."""


async def log_readiness(readiness: WatchReadiness) -> NoReturn:
    """Log changes of the readiness until cancelled; `kinds` logs the kinds that are missing."""
    states = Deduplicator()
    delayed = 0
    while True:
        reason = readiness.not_watched_reason()
        delayed = 0 if reason is None else delayed + 1
        if reason is not None:
            if delayed >= _DELAYED_POLLS and states.is_new(reason):
                _log.warning("Waiting for a watch", reason=reason)
        elif not readiness.missing_kinds() and states.is_new():
            _log.info("All kinds are watched")
        await asyncio.sleep(_POLL_SECONDS)
