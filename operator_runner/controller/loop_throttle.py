"""Throttle resources that keep triggering themselves. Pure: the caller passes the time.

An echo is the change of an object shortly after a run wrote it: another controller reverts the
change, or the run triggers itself. A single echo is ordinary; a streak of them is a loop. Changes
of objects that the run did not write never count, nor do echoes for which a run writes nothing,
such as those of a rollout. See docs/adr/0010-causes.md.

Anyone with write access to a resource may set its period by an annotation: a few could keep the
operator busy. The periods of one namespace may take a share of its concurrent runs; what exceeds
it waits. A run is admitted with the duration of the last one, which is corrected at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from operator_runner.core.model import Cause, ObjectRef, Trigger
from operator_runner.core.resource_states import ResourceStates

_BURST_SECONDS = 60.0
"""Time whose share a namespace may take at once: runs that start together are not delayed."""


@dataclass(slots=True)
class _PeriodicRuns:
    """The runs of a resource whose annotation sets its period."""

    seconds: float = 0.0
    """Duration of the last one."""
    admitted: tuple[float, float] | None = None
    """Start and expected duration of the next one."""
    is_reported: bool = False
    """Whether a delay was reported since the annotation was set."""


class PeriodShare:
    """Delays periodic runs so that those of a namespace have at most `runs` slots on average."""

    def __init__(self, runs: float, states: ResourceStates) -> None:
        """Take a number of concurrent runs, not necessarily whole."""
        self._runs = runs
        self._states = states
        self._free: dict[str, float] = {}
        """When the admitted runs of a namespace have used up its share."""

    def delay(self, key: ObjectRef, causes: Iterable[Cause], now: float) -> float:
        """Return the seconds that a run with these causes has to wait."""
        periodic = self._states.find(key, _PeriodicRuns)
        if periodic is None or any(cause.trigger is not Trigger.PERIOD for cause in causes):
            self._correct(key, 0.0, now)  # something else than the annotation starts it
            return 0.0
        if periodic.admitted is None:
            free = max(self._free.get(key.namespace, 0.0), now)
            periodic.admitted = free - _BURST_SECONDS, periodic.seconds
            self._free[key.namespace] = free + periodic.seconds / self._runs
        return max(periodic.admitted[0] - now, 0.0)

    def is_first(self, key: ObjectRef) -> bool:
        """Return whether a delay is the first one since the annotation was set."""
        periodic = self._states.of(key).slot(_PeriodicRuns)
        first, periodic.is_reported = not periodic.is_reported, True
        return first

    def run_ended(self, key: ObjectRef, seconds: float, now: float, *, annotated: bool) -> None:
        """Record a run; `annotated` is whether the resource sets the time of its next one."""
        self._correct(key, seconds, now)
        if annotated:
            self._states.of(key).slot(_PeriodicRuns).seconds = seconds
        elif (state := self._states.get(key)) is not None:
            state.drop(_PeriodicRuns)

    def _correct(self, key: ObjectRef, seconds: float, now: float) -> None:
        """Replace the expected duration of an admitted run."""
        periodic = self._states.find(key, _PeriodicRuns)
        if periodic is not None and periodic.admitted is not None:
            (_, expected), periodic.admitted = periodic.admitted, None
            if key.namespace in self._free:  # else the whole share is free meanwhile
                self._free[key.namespace] += (seconds - expected) / self._runs
        if self._free.get(key.namespace, now) < now:
            del self._free[key.namespace]


_QUICK_SECONDS = 10.0
"""Time after a run within which its echo counts; people and schedules are slower."""
_MAX_STREAK = 5
"""Consecutive echoes that are not yet a loop."""
_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 2.0, 300.0
"""Delay of a run in a loop, doubled each time up to the maximum. A loop is never stopped."""

_TIMERS = frozenset(
    {Trigger.RETRY, Trigger.PERIOD, Trigger.REQUEUE, Trigger.SCHEDULE, Trigger.START}
)
"""Causes that are not events of an object."""
_REQUESTED = frozenset({Trigger.RETRY, Trigger.REQUEUE, Trigger.SCHEDULE})
"""Times that the role, its schedule or a failure has set: events do not delay such a run."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """A run is to wait for `seconds`. `first` is set once for each throttled run."""

    seconds: float
    echoes: tuple[Cause, ...]
    streak: int
    first: bool


@dataclass(slots=True)
class _Streak:
    """Consecutive echoes of one resource, and the end of its last run."""

    ended: float = 0.0
    length: int = 0
    counted: bool = False
    """Whether the causes of the next run have been judged."""
    lengthened: bool = False
    """Whether they have added to `length`."""
    reported: bool = False
    until: float = 0.0


class LoopThrottle:
    """Decides before each run whether it has to wait."""

    def __init__(
        self,
        is_echo: Callable[[ObjectRef, Cause], bool],
        has_written: Callable[[ObjectRef], bool],
        states: ResourceStates,
        periodic_runs: float = 1.0,
    ) -> None:
        """`is_echo` returns whether a cause is about what the runs of the resource wrote last.

        `has_written` returns whether the last run has written anything. `periodic_runs` is the
        number of concurrent runs that the annotations of a namespace may take.
        """
        self._states = states
        self._share = PeriodShare(periodic_runs, states)
        self._is_echo = is_echo
        self._has_written = has_written

    def run_ended(
        self, key: ObjectRef, now: float, *, seconds: float = 0.0, annotated: bool = False
    ) -> None:
        """Record the end of a run of some seconds, at `now` seconds of any monotonic clock.

        `annotated` is whether an annotation of the resource sets the time of the next run.
        """
        self._share.run_ended(key, seconds, now, annotated=annotated)
        streak = self._states.of(key).slot(_Streak)
        if streak.lengthened and not self._has_written(key):
            streak.length -= 1
        streak.counted = streak.lengthened = streak.reported = False
        streak.ended, streak.until = now, 0.0

    def count(self, key: ObjectRef) -> int:
        """Return how many echoes a throttled resource has had; 0 for others."""
        streak = self._states.find(key, _Streak)
        return streak.length if streak is not None and streak.length > _MAX_STREAK else 0

    def restore(self, key: ObjectRef, echoes: int, now: float) -> None:
        """Continue to throttle a resource with the count of another replica."""
        if echoes and self._states.find(key, _Streak) is None:
            streak = self._states.of(key).slot(_Streak)
            streak.ended, streak.length = now, echoes

    def check(
        self, key: ObjectRef, causes: Iterable[Cause], arrived: float, now: float
    ) -> Throttle | None:
        """Return the throttle for a run with these causes, or None.

        `arrived` is the time of the first of them.
        """
        causes = tuple(causes)
        if (seconds := self._share.delay(key, causes, now)) > 0:
            return Throttle(seconds, (), 0, self._share.is_first(key))
        state = self._states.get(key)
        streak = None if state is None else state.find(_Streak)
        events = [cause for cause in causes if cause.trigger not in _TIMERS]
        if state is None or streak is None or not events:
            return None
        if any(cause.trigger in _REQUESTED for cause in causes):
            return None
        echoes = tuple(cause for cause in events if self._is_echo(key, cause))
        if any(_is_edit(cause) and cause not in echoes for cause in events):
            # A user intervened, which ends the loop.
            state.drop(_Streak)
            return None
        if not streak.counted and echoes:
            quick = arrived - streak.ended <= _QUICK_SECONDS
            streak.length, streak.counted = (streak.length + 1 if quick else 0), True
            streak.lengthened = quick
            if streak.length > _MAX_STREAK:
                streak.until = streak.ended + min(
                    # A loop of days has a length that overflows; 2**60 exceeds the maximum.
                    _FIRST_DELAY_SECONDS * 2.0 ** min(streak.length - _MAX_STREAK - 1, 60),
                    _MAX_DELAY_SECONDS,
                )
        if len(echoes) < len(events) or now >= streak.until:
            # Changes of objects that the run did not write are handled at once.
            return None
        first, streak.reported = not streak.reported, True
        return Throttle(streak.until - now, echoes, streak.length, first)


def _is_edit(cause: Cause) -> bool:
    return cause.trigger not in {Trigger.DEPENDENT, Trigger.REFERENCE, Trigger.TRIGGER}
