"""What is wrong with a watches file, collected so that the user sees all of it at once."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the file: a line, and the path of the value, such as `[2].finalizer.name`."""

    line: int
    path: str = ""

    def child(self, name: str) -> Place:
        """Return the place of a key that is not there: the line of the map that lacks it."""
        return Place(self.line, f"{self.path}.{name}" if self.path else name)


@dataclass(frozen=True, slots=True)
class Report:
    """Problems, which keep the operator from starting, and warnings, which do not."""

    file: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, place: Place, text: str) -> None:
        """Add a problem; `text` says what is wrong and, after a semicolon, what to do."""
        self.problems.append(self._line(place, text))

    def warning(self, place: Place, text: str) -> None:
        """Add a warning, worded like a problem."""
        self.warnings.append(self._line(place, text))

    def _line(self, place: Place, text: str) -> str:
        where = f"{self.file}:{place.line}: "
        return f"{where}{place.path}: {text}" if place.path else where + text
