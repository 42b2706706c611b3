"""Loggers that write where a test can read, and the process's logging put back afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def _own_logging() -> Iterator[None]:
    """Put handlers, levels and structlog's settings back as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    named = [logging.getLogger(name) for name in ("kopf", "aiohttp", "kubernetes", "asyncio")]
    levels = [logger.level for logger in named]
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for logger, its_level in zip(named, levels, strict=True):
        logger.setLevel(its_level)
    structlog.reset_defaults()
