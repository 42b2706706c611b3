"""Print tables as kubectl does, JSON and YAML, colours only on a terminal; exit statuses."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import click

from operator_runner.core.texts import printable
from operator_runner.tools import yaml_io

EXIT_UNANSWERED = 3
"""Exit status of a command that no operator has answered in time; 1 is a failure, 2 wrong usage."""
_GAP = "   "
_COLOURS = {
    "True": "green",
    "ready": "green",
    "Succeeded": "green",
    "False": "red",
    "Failed": "red",
    "failed": "red",
    "Unknown": "yellow",
    "not ready": "yellow",
    "Running": "cyan",
    "Waiting": "cyan",
    "Suspended": "yellow",
    "Deleting": "yellow",
    "Unhandled": "yellow",
}
"""Colours of whole cells."""


class OutputFormat(StrEnum):
    """Formats of `--output`."""

    TABLE = ""
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_data(self) -> bool:
        """Whether it has all fields, for programs."""
        return self in {OutputFormat.JSON, OutputFormat.YAML}

    @property
    def is_table(self) -> bool:
        """Whether it is for people."""
        return self in {OutputFormat.TABLE, OutputFormat.WIDE}


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Print a table; return the widths of its columns."""
    safe = [header, *map(_safe, rows)]
    columns = [max(map(len, column)) for column in zip(*safe, strict=True)]
    for row in safe:
        print_row(row, columns)
    return columns


def print_row(row: Sequence[str], columns: Sequence[int]) -> None:
    """Print one row of a table with columns of at least these widths."""
    cells = _safe(row)
    padded = [cell.ljust(width) for cell, width in zip(cells, columns, strict=True)]
    painted = map(_painted, cells, [*padded[:-1], cells[-1]])
    print_coloured(_GAP.join(painted).rstrip())


def print_coloured(line: str) -> None:
    """Print a line that `click.style` has coloured; without colours where they are unwanted."""
    # None leaves the decision to the terminal.
    click.echo(line, color=False if os.environ.get("NO_COLOR") else None)


def _safe(row: Sequence[str]) -> list[str]:
    return [printable(cell).replace("\n", " ") for cell in row]


def print_data(data: Any, format_: OutputFormat) -> None:
    """Print data as JSON or YAML."""
    if format_ is OutputFormat.JSON:
        click.echo(json.dumps(data, indent=4))
    else:
        click.echo(yaml_io.dump(data), nl=False)


def print_document(data: Any, format_: OutputFormat) -> None:
    """Print one of a stream of documents: a line of JSON, or YAML after `---`."""
    if format_ is OutputFormat.JSON:
        click.echo(json.dumps(data))
    else:
        click.echo(f"---\n{yaml_io.dump(data)}", nl=False)


def _painted(cell: str, padded: str) -> str:
    colour = _COLOURS.get(cell)
    return padded if colour is None else click.style(padded, fg=colour)
