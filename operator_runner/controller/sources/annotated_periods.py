"""Schedule the next run when the annotation reconcile-period of a resource changes.

Otherwise the next run would read it, which may be hours away. A run that is due earlier stays: a
period that gets longer, or is removed, takes effect after that run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from operator_runner.core.model import Cause, Json, ObjectRef, Trigger
from operator_runner.reconcile.annotation_overrides import clamp_period, read_overrides


class AnnotatedPeriods:
    """Remembers the periods of the resources that have the annotation."""

    def __init__(self, enqueue_after: Callable[[ObjectRef, Cause, float], None]) -> None:
        """`enqueue_after` takes a delay in seconds; it keeps a run that is due earlier."""
        self._enqueue_after = enqueue_after
        self._periods: dict[ObjectRef, timedelta] = {}

    def on_change(self, ref: ObjectRef, body: Json | None) -> None:
        """Compare the period of a resource with its last one; None for a deleted resource.

        The first run of a new resource, which follows, replaces the one that is scheduled here.
        """
        before = self._periods.pop(ref, None)
        period = None if body is None else read_overrides(body).period
        if period is None:
            return
        self._periods[ref] = period
        if period and period != before:
            seconds = clamp_period(period).total_seconds()
            self._enqueue_after(ref, Cause(Trigger.PERIOD, f"{seconds:g} s"), seconds)
