"""Slows down a resource that keeps triggering itself. Pure: time is given, nothing is sent.

A run that writes an object, and is woken at once because that object changed again, is in a
fight with another writer, or answers to itself. One such echo is ordinary; a row of them is a
loop. What a run did not write is never held against it, however busy it is.
See docs/adr/0010-why.md.

A resource whose annotation asks for a run each second is slowed down too: whoever may write a
resource could keep the operator busy for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from operator_runner.core.model import Cause, ObjectRef, Trigger

QUICK = 10.0
"""Seconds after a run within which an echo of it counts; people and schedules are slower."""
_ROW = 5
"""Echoes in a row that are still no loop."""
_FIRST, _LIMIT = 2.0, 300.0
"""Seconds that a loop is held back: doubled each time, up to the limit. It is never stopped."""

_TIMERS = frozenset({Trigger.RETRY, Trigger.PERIOD, Trigger.REQUEUE, Trigger.START})
"""Causes that are no events: they say nothing about who changed what."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Do not run yet, but in `seconds`. `first` is set once for each run that is held back."""

    seconds: float
    echoes: tuple[Cause, ...]
    row: int
    first: bool


@dataclass(slots=True)
class _Row:
    """Echoes in a row of one resource, and since when its last run is over."""

    ended: float
    length: int = 0
    hurried: bool = False
    periods: int = 0
    """Runs in a row that the resource itself asked for in quick succession."""
    counted: bool = False
    told: bool = False
    until: float = 0.0


class LoopBreaker:
    """Decides before each run whether it is to wait."""

    def __init__(self, is_echo: Callable[[ObjectRef, Cause], bool]) -> None:
        """`is_echo` tells whether a cause is about what the last run of the resource wrote."""
        self._is_echo = is_echo
        self._rows: dict[ObjectRef, _Row] = {}

    def ended(self, key: ObjectRef, now: float, *, period: float | None = None) -> None:
        """Take note of the end of a run, at `now` seconds of any steady clock.

        `period` is after how many seconds the resource itself asks for the next one, if it does.
        """
        row = self._rows.setdefault(key, _Row(now))
        row.hurried = period is not None and period < QUICK
        row.periods = row.periods if row.hurried else 0
        row.ended, row.counted, row.told, row.until = now, False, False, 0.0

    def forget(self, key: ObjectRef) -> None:
        """Drop what is known of a resource that is gone."""
        self._rows.pop(key, None)

    def check(
        self, key: ObjectRef, causes: Iterable[Cause], arrived: float, now: float
    ) -> Hold | None:
        """Return how long a run for these causes is to wait; None: not at all.

        `arrived` is when the first of them came.
        """
        row = self._rows.get(key)
        events = [cause for cause in causes if cause.trigger not in _TIMERS]
        if row is None:
            return None
        if not events:
            return _check_period(row, causes, now)
        echoes = tuple(cause for cause in events if self._is_echo(key, cause))
        if any(_is_edit(cause) and cause not in echoes for cause in events):
            # Somebody did something about it: whatever was, is over.
            del self._rows[key]
            return None
        if not row.counted and echoes:
            quick = arrived - row.ended <= QUICK
            row.length, row.counted = (row.length + 1 if quick else 0), True
            if row.length > _ROW:
                row.until = row.ended + min(_FIRST * 2.0 ** (row.length - _ROW - 1), _LIMIT)
        if len(echoes) < len(events) or now >= row.until:
            # The change of an object that the run did not write is answered at once.
            return None
        first, row.told = not row.told, True
        return Hold(row.until - now, echoes, row.length, first)


def _check_period(row: _Row, causes: Iterable[Cause], now: float) -> Hold | None:
    if not row.hurried or any(cause.trigger is not Trigger.PERIOD for cause in causes):
        return None
    if not row.counted:
        row.periods, row.counted = row.periods + 1, True
    due = row.ended + QUICK
    if row.periods <= _ROW or now >= due:
        return None
    # It stays like this until the annotation changes, so once is often enough to say it.
    first, row.told = row.periods == _ROW + 1 and not row.told, True
    return Hold(due - now, (), row.periods, first)


def _is_edit(cause: Cause) -> bool:
    return cause.trigger not in {Trigger.DEPENDENT, Trigger.REFERENCE}
