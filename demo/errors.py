"""Errors of the demo."""

from __future__ import annotations

from pathlib import Path


class DemoError(Exception):
    """A failed step; `cure` is an instruction for the user, `log` a file with more details."""

    def __init__(self, problem: str, *, cure: str = "", log: Path | None = None) -> None:
        """Keep the parts apart; `__str__` joins them into lines for a person."""
        super().__init__(problem)
        self.problem = problem
        self.cure = cure
        self.log = log

    def __str__(self) -> str:
        """Problem, cure and log file, a line each."""
        lines = [self.problem]
        if self.cure:
            lines.append(f"Cure: {self.cure}")
        if self.log is not None:
            lines.append(f"Log: {self.log}")
        return "\n".join(lines)


class TimedOut(DemoError):
    """A condition was not met before the deadline."""
