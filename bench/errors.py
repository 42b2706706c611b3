"""Errors of bench and soak."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement was not possible, or a check of the soak failed."""


class TimedOut(BenchError):
    """A state was not reached within its deadline."""
