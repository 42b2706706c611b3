"""Metrics of a kind that a test can read as what was recorded, in order."""

from __future__ import annotations

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.telemetry.metrics import Metrics


class RecordedMetrics(Metrics):
    """Keeps the arguments of what a reconcile records."""

    def __init__(self, gvk: GVK) -> None:
        """Watch one kind."""
        super().__init__("1")
        self.watching(gvk, 1)
        self.idempotent: list[bool] = []
        self.suspended: list[bool] = []
        self.drifted: list[bool] = []
        self.missed: list[GVK] = []

    def record_idempotence(self, ref: ObjectRef, is_idempotent: bool) -> None:
        """See `Metrics`."""
        super().record_idempotence(ref, is_idempotent)
        self.idempotent.append(is_idempotent)

    def record_suspension(self, ref: ObjectRef, is_suspended: bool) -> None:
        """See `Metrics`."""
        super().record_suspension(ref, is_suspended)
        self.suspended.append(is_suspended)

    def record_drift(self, ref: ObjectRef, is_drifted: bool) -> None:
        """See `Metrics`."""
        super().record_drift(ref, is_drifted)
        self.drifted.append(is_drifted)

    def tick_missed(self, gvk: GVK) -> None:
        """See `Metrics`."""
        super().tick_missed(gvk)
        self.missed.append(gvk)
