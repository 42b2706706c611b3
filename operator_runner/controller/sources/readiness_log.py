"""Log when all kinds are watched, and what delays it."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import structlog

from operator_runner.controller.sources.watch_readiness import WatchReadiness
from operator_runner.core.deduplication import Deduplicator

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
