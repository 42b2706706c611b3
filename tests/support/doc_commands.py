"""Parse the commands of a page and their expected output, to execute them unchanged.

The lines after `$ ` are commands; the lines below a command are its output, in this order, with
`...` for text that varies. Several blanks are equal to one. Times, ages, durations, ports and IDs
of runs match others of their kind, as do numbers of runs. An ID in later commands is the one that
was printed in its place.
Words after `console` are for tests:

    ```console              commands with their output
    ```console background   one command that keeps running; wait for its output
    ```console restart      the same, after the commands in the background have been ended
    ```console cleanup      commands that are always executed at the end
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>.*)\n(?P<body>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_LOOKS = re.compile(
    r"(\w+=\S+ )*"
    r"(kubectl( -n \S+)? (get|describe|logs|top|api-resources|wait|auth can-i)|curl"
    r"|cat(?! >)|grep|operator-runner (get|tree|why|runs|cluster status))\b"
)
_RUN_ID = r"\b[0-9a-f]{16}\b"
_VARYING = (
    r"\b\d{4}-\d\d-\d\dT[\d:.]+Z",  # a time
    r"\b\d+\.\d s\b",  # a duration
    r"\b(?:\d+[dhms]){1,2}\b",  # an age
    r"\b127\.0\.0\.1:\d+\b",
    r"\b\d+ (?:runs|failed)\b",
    _RUN_ID,
)
_SHAPES = re.compile("|".join(f"({shape})" for shape in _VARYING))
_PROMPT = "$ "
_ANYTHING = "..."


class Mode(Enum):
    """Execution of the commands of a block."""

    PLAIN = ""
    BACKGROUND = "background"
    RESTART = "restart"
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Step:
    """A command with its expected output."""

    command: str
    printed: tuple[str, ...]
    mode: Mode
    line: int
    """Line of the command in the page."""

    @property
    def only_looks(self) -> bool:
        """True if the command changes nothing: it may be repeated until its output matches."""
        return _LOOKS.match(self.command) is not None

    def is_shown_by(self, output: str) -> bool:
        """Return True if an output contains all lines of the page, in that order."""
        return self._matches(output) is not None

    def run_ids(self, output: str) -> dict[str, str]:
        """Return the IDs of runs in the page with those that an output has in their places."""
        found = self._matches(output) or []
        shown = [each for match in found for each in match.groups()]
        return dict(zip(re.findall(_RUN_ID, "\n".join(self.printed)), shown, strict=bool(found)))

    def _matches(self, output: str) -> list[re.Match[str]] | None:
        """Return a match for each line of the page, None if one is missing."""
        lines = iter(" ".join(line.split()) for line in output.splitlines())
        found = [
            next(filter(None, map(want.search, lines)), None)
            for want in map(_pattern, self.printed)
        ]
        matches = [each for each in found if each is not None]
        return matches if len(matches) == len(found) else None


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its words after the fence, its text without indentation, its first line."""

    info: str
    text: str
    line: int


def section(page: str, title: str) -> str:
    """Return the text below a heading of the second level; its lines keep their numbers."""
    before, found, rest = page.partition(f"\n## {title}\n")
    assert found, f"no section {title!r}"
    return "\n" * (before.count("\n") + 2) + rest.split("\n## ")[0] + "\n"


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(
            found["info"].strip(),
            re.sub(f"^{found['indent']}", "", found["body"], flags=re.MULTILINE),
            page[: found.start("body")].count("\n") + 1,
        )
        for found in _FENCE.finditer(page)
    ]


def steps(page: str) -> list[Step]:
    """Return the commands of all `console` blocks of a page."""
    return [
        step
        for block in blocks(page)
        if block.info.partition(" ")[0] == "console"
        for step in _steps(block, Mode(block.info.partition(" ")[2].strip()))
    ]


def _steps(block: Block, mode: Mode) -> Iterator[Step]:
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        assert lines[at].startswith(_PROMPT), f"line {block.line + at}: output without a command"
        end = _end_of_command(lines, at)
        printed = list(takewhile(lambda line: not line.startswith(_PROMPT), lines[end:]))
        command = "\n".join([lines[at].removeprefix(_PROMPT), *lines[at + 1 : end]])
        yield Step(command, tuple(line for line in printed if line.strip()), mode, block.line + at)
        at = end + len(printed)


def _end_of_command(lines: list[str], at: int) -> int:
    """Return the index after a command, which a backslash or a here-document may continue."""
    if document := _HEREDOC.search(lines[at]):
        return lines.index(document[2], at) + 1
    while lines[at].endswith("\\"):
        at += 1
    return at + 1


def _pattern(line: str) -> re.Pattern[str]:
    parts = (" ".join(part.split()) for part in line.split(_ANYTHING))
    return re.compile(r"\s?.*?\s?".join(map(_with_shapes, parts)))


def _with_shapes(text: str) -> str:
    """Return a pattern of a text; only IDs of runs are groups."""
    found, at = "", 0
    for match in _SHAPES.finditer(text):
        shape = _VARYING[(match.lastindex or 0) - 1]
        found += re.escape(text[at : match.start()])
        found += f"({shape})" if shape == _RUN_ID else f"(?:{shape})"
        at = match.end()
    return found + re.escape(text[at:])
