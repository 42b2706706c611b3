"""The pages for contributors name files; a file that is moved has to be moved there."""

from __future__ import annotations

import re

import pytest

from tests.support.doc_commands import section
from tests.support.operator import REPOSITORY

_FILE = re.compile(r"`([\w/.]+)`")


def test_the_files_of_where_is_what_exist() -> None:
    """Each behaviour names its file, and there are enough of them to find one's way."""
    table = section((REPOSITORY / "CONTRIBUTING.md").read_text(), "Where is what")
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 12
    for row in rows:
        files = _FILE.findall(row.strip("| ").rpartition("|")[2])
        assert files, row
        assert [file for file in files if not (REPOSITORY / file).exists()] == []


@pytest.mark.parametrize("page", ["architecture.md", "adr/0026-packages.md"])
def test_the_modules_that_a_page_names_exist(page: str) -> None:
    """The modules and folders that the page names below `operator_runner/` exist."""
    text = (REPOSITORY / "docs" / page).read_text()
    package = REPOSITORY / "operator_runner"
    inside = [path.name for path in package.rglob("*") if path.is_dir()]
    named = [path for path in _FILE.findall(text) if path.endswith((".py", "/"))]
    assert len(named) > 10
    elsewhere = {"operator_runner/", "execution/", "observe/", "triggers/"}
    missing = [
        path
        for path in set(named) - elsewhere
        if not (package / path).exists() and path.rstrip("/") not in inside
    ]
    assert missing == []


def test_the_python_files_that_decisions_name_exist() -> None:
    """A decision names a file by the end of its path; a renamed file is renamed there too."""
    folders = ("operator_runner", "tests", "bench", "release")
    files = [f"/{path}" for name in folders for path in (REPOSITORY / name).rglob("*.py")]
    pages = sorted((REPOSITORY / "docs" / "adr").glob("*.md"))
    named = {
        (page.name, path)
        for page in pages
        for path in _FILE.findall(page.read_text())
        if path.endswith(".py")
    }
    assert len(named) > 50
    assert [
        each for each in sorted(named) if not any(f.endswith(f"/{each[1]}") for f in files)
    ] == []
