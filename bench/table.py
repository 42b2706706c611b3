"""Render the table for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.figures import HEADINGS, Row, Verdict

_STYLES = {
    Verdict.TARGET_MET: "bold green",
    Verdict.WITHIN_LIMIT: "green",
    Verdict.TARGET_MISSED: "yellow",
    Verdict.LIMIT_EXCEEDED: "bold red",
    Verdict.NONE: "default",
}


def terminal_table(rows: Sequence[Row]) -> Table:
    """Return the table for a terminal."""
    table = Table(*HEADINGS, box=None, pad_edge=False)
    for row in rows:
        *cells, verdict = row.cells()
        table.add_row(*cells, f"[{_STYLES[row.verdict]}]{verdict}")
    return table


def markdown_table(rows: Sequence[Row]) -> str:
    """Return the table for a document."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def name_table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a Markdown table of names and values."""
    return "\n".join(
        [f"| {title} | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    )
