"""Bound the runs that annotations of resources request, by namespace. Pure: time is an argument.

Anyone with write access to a resource may set its period, so that a few annotations could keep the
operator busy. The periods of one namespace may take a share of its concurrent runs; what exceeds
it waits. A run is admitted with the duration of the last one, which is corrected at its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from operator_runner.core.model import Cause, ObjectRef, Trigger

_BURST_SECONDS = 60.0
"""Time whose share a namespace may take at once: runs that start together are not delayed."""


class PeriodShare:
    """Delays periodic runs so that those of a namespace have at most `runs` slots on average."""

    def __init__(self, runs: float) -> None:
        """Take a number of concurrent runs, not necessarily whole."""
        self._runs = runs
        self._seconds: dict[ObjectRef, float] = {}
        """Duration of the last run of each resource whose annotation sets its period."""
        self._free: dict[str, float] = {}
        """When the admitted runs of a namespace have used up its share."""
        self._admitted: dict[ObjectRef, tuple[float, float]] = {}
        """Start and expected duration of the next run."""
        self._reported: set[ObjectRef] = set()

    def delay(self, key: ObjectRef, causes: Iterable[Cause], now: float) -> float:
        """Return the seconds that a run with these causes has to wait."""
        is_periodic = all(cause.trigger is Trigger.PERIOD for cause in causes)
        if key not in self._seconds or not is_periodic:
            self._correct(key, 0.0, now)  # something else than the annotation starts it
            return 0.0
        if key not in self._admitted:
            expected = self._seconds[key]
            free = max(self._free.get(key.namespace, 0.0), now)
            self._admitted[key] = (free - _BURST_SECONDS, expected)
            self._free[key.namespace] = free + expected / self._runs
        return max(self._admitted[key][0] - now, 0.0)

    def is_first(self, key: ObjectRef) -> bool:
        """Return whether a delay is the first one since the annotation was set."""
        first = key not in self._reported
        self._reported.add(key)
        return first

    def run_ended(self, key: ObjectRef, seconds: float, now: float, *, annotated: bool) -> None:
        """Record a run; `annotated` is whether the resource sets the time of its next one."""
        self._correct(key, seconds, now)
        if annotated:
            self._seconds[key] = seconds
        else:
            self.forget(key)

    def forget(self, key: ObjectRef) -> None:
        """Drop what is known of a resource."""
        for known in (self._seconds, self._admitted):
            known.pop(key, None)
        self._reported.discard(key)

    def _correct(self, key: ObjectRef, seconds: float, now: float) -> None:
        """Replace the expected duration of an admitted run."""
        _, expected = self._admitted.pop(key, (0.0, None))
        if expected is not None:
            self._free[key.namespace] += (seconds - expected) / self._runs
        if self._free.get(key.namespace, now) < now:
            del self._free[key.namespace]
