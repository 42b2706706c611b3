"""Rows of the table: measured value, limit, target and verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Verdict(StrEnum):
    """Comparison of a value with its limit and target."""

    TARGET_MET = "met"
    WITHIN_LIMIT = "within limit"
    TARGET_MISSED = "missed"
    LIMIT_EXCEEDED = "LIMIT EXCEEDED"
    NONE = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """Maximum of a value, and the intended value; a figure without both is not judged."""

    limit: float | None = None
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time and CPU time of a piece of work, in seconds."""

    wall: float
    cpu: float

    @classmethod
    def median(cls, costs: Sequence[Cost]) -> Cost:
        """Return the medians of both."""
        return cls(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; `value` is compared with the goal, and less is better."""

    work: str
    ours: str
    other: str
    value: float
    goal: Goal
    show: Callable[[float], str]

    @property
    def verdict(self) -> Verdict:
        """Comparison with target and limit."""
        goal = self.goal
        if goal.target is not None and self.value <= goal.target:
            return Verdict.TARGET_MET
        if goal.limit is None:
            return Verdict.NONE if goal.target is None else Verdict.TARGET_MISSED
        return Verdict.WITHIN_LIMIT if self.value <= goal.limit else Verdict.LIMIT_EXCEEDED

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row, in the order of HEADINGS."""
        limits = (self.goal.limit, self.goal.target)
        shown = ("" if limit is None else self.show(limit) for limit in limits)
        return (self.work, self.ours, self.other, self.show(self.value), *shown, self.verdict)


HEADINGS = ("work", "operator-runner", "comparison", "result", "limit", "target", "verdict")


def ratio_row(work: str, ours: float, other: float, goal: Goal) -> Row:
    """Return a row with the ratio of two durations in seconds."""
    return Row(work, f"{ours:.3f} s", f"{other:.2f} s", ours / other, goal, share)


def share(value: float) -> str:
    """Format a share as a fraction: 0.04 is 1/25."""
    return f"1/{1 / value:.3g}" if value else "0"


def mebibytes(value: float) -> str:
    """Format bytes."""
    return f"{value / 1024**2:.0f} MiB"


def number(value: float) -> str:
    """Format a count or a mean of counts."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def seconds(value: float) -> str:
    """Format a duration in seconds."""
    return f"{value:.0f} s"


def hundredths(value: float) -> str:
    """Format a short duration in seconds."""
    return f"{value:.2f} s"


def percent(value: float) -> str:
    """Format a share as percentage."""
    return f"{value:.0%}"
