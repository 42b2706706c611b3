"""Errors of the demo."""

from __future__ import annotations

from pathlib import Path


class DemoError(Exception):
    """A failed step; `hint` is an instruction for the user, `log` a file with more details."""

    def __init__(self, problem: str, *, hint: str = "", log: Path | None = None) -> None:
        """Keep the parts apart; `__str__` joins them into lines."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.log = log

    def __str__(self) -> str:
        """Problem, hint and log file, a line each."""
        lines = [self.problem]
        if self.hint:
            lines.append(f"Solution: {self.hint}")
        if self.log is not None:
            lines.append(f"Log: {self.log}")
        return "\n".join(lines)


class TimedOut(DemoError):
    """A condition was not met before the deadline."""
