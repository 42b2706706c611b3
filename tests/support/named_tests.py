"""Pages that name the tests of their statements."""

from __future__ import annotations

import ast
import re

from tests.support.operator import REPOSITORY

_NAMED = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`?")


def named(page: str) -> set[tuple[str, str]]:
    """Return file and function (may be empty) of all tests that a page of docs/ names."""
    return set(_NAMED.findall((REPOSITORY / "docs" / page).read_text()))


def missing(page: str) -> list[str]:
    """Return the tests that a page names and that are not there."""
    return [f"{path}::{name}" for path, name in sorted(named(page)) if not _exists(path, name)]


def unproven(page: str, *heads: str, without: tuple[str, ...] = ()) -> list[str]:
    """Return the rows of a page's tables that name no test; `heads` begin the header rows.

    The header rows of tables that need no tests begin with `without`.
    """
    text = (REPOSITORY / "docs" / page).read_text()
    tables = [each.strip() for each in re.split(r"\n\s*\n", text)]
    lines = [line for each in tables if not each.startswith(without) for line in each.splitlines()]
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(heads)]
    return [row for row in rows if "`tests/" not in row]


def _exists(path: str, name: str) -> bool:
    file = REPOSITORY / path
    if not name:
        return file.exists()
    if not file.is_file():
        return False
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        isinstance(node, functions) and node.name == name
        for node in ast.parse(file.read_text()).body
    )
