"""A Lease that is held by a clock which the test sets."""

from __future__ import annotations

from operator_runner.core.fencing import Epoch, LeaseTerm, LeaseTimes

EPOCH: Epoch = ("uid", 0)


class Clock:
    """A clock that does not advance until a test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


def held_term(clock: Clock, duration: float = 15.0, renew_deadline: float = 10.0) -> LeaseTerm:
    """Return the term of the Lease team/web, renewed just now."""
    term = LeaseTerm("team/web", LeaseTimes(duration, renew_deadline), clock)
    term.extend(EPOCH, clock.now)
    return term
