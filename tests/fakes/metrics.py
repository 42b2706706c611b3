"""Metrics of a kind that a test can read as what was recorded, in order."""

from __future__ import annotations

from operator_runner.core.model import GVK
from operator_runner.telemetry.metrics import Metrics


class RecordedMetrics(Metrics):
    """Keeps the arguments of what a reconcile records."""

    def __init__(self, gvk: GVK) -> None:
        """Watch one kind."""
        super().__init__("1")
        self.watching(gvk, 1)
        self.missed: list[GVK] = []

    def tick_missed(self, gvk: GVK) -> None:
        """See `Metrics`."""
        super().tick_missed(gvk)
        self.missed.append(gvk)
