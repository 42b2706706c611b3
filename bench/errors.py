"""What can go wrong in a bench or a soak."""

from __future__ import annotations


class BenchError(Exception):
    """Something did not happen, so that there is nothing to measure, or was found untrue."""
