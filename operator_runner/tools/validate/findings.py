"""Findings of a check: mistakes in files of the project. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FIRST = 3
"""Places of a summary."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A mistake with its location and hint; a warning does not make the check fail."""

    path: Path
    line: int
    message: str
    is_error: bool = True

    def text(self, base: Path) -> str:
        """Return `path:line: message`, with a path relative to `base` if it is below."""
        return f"{self.place(base)}: {self.message}"

    def place(self, base: Path) -> str:
        """Return `path:line`."""
        path = self.path.relative_to(base) if self.path.is_relative_to(base) else self.path
        return f"{path}:{self.line}"


def summarized(findings: Iterable[Finding], base: Path) -> Iterator[str]:
    """Yield one text for all findings with the same message, with the first places."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for finding in findings:
        places[finding.message].append(finding.place(base))
    for message, found in places.items():
        if len(found) == 1:
            yield f"{found[0]}: {message}"
            continue
        more = ", ...; --all lists them" if len(found) > _FIRST else ""
        yield f"{message} ({len(found)} places: {', '.join(found[:_FIRST])}{more})"


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by file and line, each once."""
    return sorted(set(findings))
