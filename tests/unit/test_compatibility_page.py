"""docs/compatibility.md names tests; they have to be there."""

from __future__ import annotations

import ast
import re

from tests.support.operator import REPOSITORY

_NAMED = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`?")


def test_every_test_that_it_names_exists() -> None:
    """Each line shows its proof; a test that is renamed has to be renamed there."""
    page = (REPOSITORY / "docs" / "compatibility.md").read_text()
    named = set(_NAMED.findall(page))
    assert len(named) > 100
    missing = [f"{path}::{name}" for path, name in named if not _exists(path, name)]
    assert missing == []


def test_every_line_names_a_test() -> None:
    """Nothing is claimed without one."""
    page = (REPOSITORY / "docs" / "compatibility.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith(("| line |", "| pain |", "| fault |"))]
    assert [row for row in claims if "`tests/" not in row] == []


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
