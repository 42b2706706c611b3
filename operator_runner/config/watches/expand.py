"""Environment variables in the raw text of watches.yaml, before it is read as YAML.

The rules are those of Go's os.Expand, with which ansible-operator does this: `$NAME` and
`${NAME}`, the one-letter names of a shell (`$1`, `$$`, `$@`), and broken references swallowed.
The header of a vault value (`$ANSIBLE_VAULT;`) is not a reference, and a one-letter name that is
not set stays as it is written, as in `$1.00`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(
    r"""\$(?:
        (?P<empty>\{\})                    # nothing named: vanishes
      | \{(?P<braced>[^}]+)\}              # any name at all, over several lines too
      | (?P<open>\{)                       # never closed: vanishes
      | (?P<special>[*\#$@!?\-0-9])        # one character, so $10 is $1 and a 0
      | (?!ANSIBLE_VAULT;)(?P<plain>[A-Za-z_][A-Za-z0-9_]*)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Expanded:
    """The text to be read as YAML, and how to find a line of it in the file."""

    text: str
    lines: tuple[int, ...]
    """The line in the file, from 1, of each line of `text`, from 0."""

    def source_line(self, line: int) -> int:
        """Return the line in the file for a line of `text` (counted from 0)."""
        return self.lines[min(line, len(self.lines) - 1)]


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Replace variables by their values; a variable that is not set is kept as `${NAME}`."""
    pieces: list[str] = []
    lines = [1]
    source = 1
    end = 0
    for match in _REFERENCE.finditer(text):
        plain = text[end : match.start()]
        value = _value(match, environ)
        for _ in range(plain.count("\n")):
            source += 1
            lines.append(source)
        # Further lines of a value have the line number of the end of its reference.
        last = source + match.group().count("\n")
        lines.extend(min(source + more + 1, last) for more in range(value.count("\n")))
        source = last
        pieces += [plain, value]
        end = match.end()
    rest = text[end:]
    lines.extend(range(source + 1, source + 1 + rest.count("\n")))
    return Expanded("".join(pieces) + rest, tuple(lines))


def _value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    name = match["braced"] or match["special"] or match["plain"]
    if name is None:
        return ""
    return environ.get(name, match.group() if match["special"] else f"${{{name}}}")
