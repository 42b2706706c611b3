"""Collect problems of a watches file, so that the user sees all of them at once."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Location:
    """Position in the file: a line, and the path of the value, such as `[2].finalizer.name`."""

    line: int
    path: str = ""

    def child(self, name: str) -> Location:
        """Return the location of a missing key: the line of its map."""
        return Location(self.line, f"{self.path}.{name}" if self.path else name)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Problems, which keep the operator from starting, and warnings, which do not."""

    file: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, location: Location, text: str) -> None:
        """Add a problem; `text` has the problem and, after a semicolon, the hint."""
        self.problems.append(self._line(location, text))

    def warning(self, location: Location, text: str) -> None:
        """Add a warning, worded like a problem."""
        self.warnings.append(self._line(location, text))

    def _line(self, location: Location, text: str) -> str:
        where = f"{self.file}:{location.line}: "
        return f"{where}{location.path}: {text}" if location.path else where + text
