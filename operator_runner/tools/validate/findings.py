"""Findings of a check: mistakes in files of the project. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A mistake with its location and hint; a warning does not make the check fail."""

    path: Path
    line: int
    message: str
    is_error: bool = True

    def text(self, base: Path) -> str:
        """Return `path:line: message`, with a path relative to `base` if it is below."""
        path = self.path.relative_to(base) if self.path.is_relative_to(base) else self.path
        return f"{path}:{self.line}: {self.message}"


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by file and line, each once."""
    return sorted(set(findings))
