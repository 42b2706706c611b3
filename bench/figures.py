"""The rows of the table: what was measured, the bar, the aim, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Verdict(StrEnum):
    """How a row stands."""

    AIM = "aim reached"
    BAR = "bar held"
    SHORT = "short of the aim"
    MISSED = "MISSED"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a value may be at most, and what it should be."""

    bar: float | None
    aim: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work took, in seconds."""

    wall: float
    cpu: float

    @classmethod
    def median(cls, costs: Sequence[Cost]) -> Cost:
        """Return the medians of both."""
        return cls(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `value` is what the goal is about; less is better."""

    work: str
    ours: str
    other: str
    value: float
    goal: Goal
    show: Callable[[float], str]

    @property
    def verdict(self) -> Verdict:
        """Compare with aim and bar."""
        goal = self.goal
        if goal.aim is not None and self.value <= goal.aim:
            return Verdict.AIM
        if goal.bar is None:
            return Verdict.SHORT
        return Verdict.BAR if self.value <= goal.bar else Verdict.MISSED

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the line: work, ours, other, result, bar, aim, verdict."""
        limits = (self.goal.bar, self.goal.aim)
        shown = ("" if limit is None else self.show(limit) for limit in limits)
        return (self.work, self.ours, self.other, self.show(self.value), *shown, self.verdict)


HEADINGS = ("work", "ours", "the other", "result", "bar", "aim", "verdict")


def compared(work: str, ours: Cost, other: Cost, goal: Goal) -> tuple[Row, Row]:
    """Return a row on the wall time and one on the CPU time, both as shares of the other's."""
    return (
        ratio_row(f"{work}: wall time", ours.wall, other.wall, goal),
        ratio_row(f"{work}: CPU time", ours.cpu, other.cpu, goal),
    )


def ratio_row(work: str, ours: float, other: float, goal: Goal) -> Row:
    """Return a row on a share of the seconds that the other takes."""
    return Row(work, f"{ours:.3f} s", f"{other:.2f} s", ours / other, goal, share)


def share(value: float) -> str:
    """Write a share as one over a number: 0.04 is 1/25."""
    return f"1/{1 / value:.3g}" if value else "0"


def times(value: float) -> str:
    """Write how many times as much something is."""
    return f"{value:.2f} times"


def mebibytes(value: float) -> str:
    """Write bytes."""
    return f"{value / 1024**2:.0f} MiB"


def number(value: float) -> str:
    """Write a count, which may be a mean."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def seconds(value: float) -> str:
    """Write a duration in seconds."""
    return f"{value:.0f} s"


def percent(value: float) -> str:
    """Write a share as percentage."""
    return f"{value:.0%}"
