"""Findings of a check: mistakes in files of the project. Pure.

Lines of values in YAML files are those of the tags that Ansible's parser gives them.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleError

PlacedMessage = tuple[Any, str, bool]
"""A line, or a value of the file that has one; the message; whether it is an error."""
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


_LITERAL_BLOCK = re.compile(r"\|[+-]?\d?[+-]?\s*(#.*)?$")
_SEARCHED_LINES = 50


def line_of(value: Any) -> int:
    """Return the line of a value, 1 if it has no place."""
    origin = Origin.get_tag(value)
    return (origin.line_num or 1) if origin is not None else 1


def line_in(path: Path, value: Any, line: int, word: str = "") -> int:
    """Return the line in the file for a line, from 1, of a text that may have several lines.

    A literal block keeps its lines; in other texts the next line with `word` is taken.
    """
    start = line_of(value)
    lines = _lines(path)
    if start <= len(lines) and _LITERAL_BLOCK.search(lines[start - 1]):
        return start + line
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    for number in range(start, min(start + _SEARCHED_LINES, len(lines) + 1)):
        if word and pattern.search(lines[number - 1]):
            return number
    return start


def place_of_error(error: AnsibleError, path: Path) -> tuple[Path, int]:
    """Return file and line of an error of Ansible's parser; `path` if it has none."""
    origin = error.obj if isinstance(error.obj, Origin) else Origin.get_tag(error.obj)
    if origin is None or origin.path is None:
        return path, 1
    return Path(origin.path), origin.line_num or 1


@functools.cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()
