"""The parts of docs/performance.md that are written by programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.docs_page import PAGE, circumstances, write_part


def test_only_the_marked_section_is_replaced(tmp_path: Path) -> None:
    r"""Any text is unchanged: \1 does not refer to a group."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n")
    for text in ("first", r"second \1"):
        write_part("a", text, page)
        assert page.read_text() == f"before\n<!-- a -->\n{text}\n<!-- end of a -->\nafter\n"


def test_a_page_without_the_part_is_refused(tmp_path: Path) -> None:
    """A result must not be lost silently."""
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="needs the lines"):
        write_part("a", "text", page)


@pytest.mark.parametrize(
    "part", ["ansible-operator", "flux", "memory", "churn", "breakdown", "soak"]
)
def test_the_page_has_all_parts(part: str) -> None:
    """What bench and soak write has its place."""
    text = PAGE.read_text()
    assert text.count(f"<!-- {part} -->") == text.count(f"<!-- end of {part} -->") == 1


def test_a_measurement_without_bytecode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-runner is slower then, so that the ratios are better."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert "without writing bytecode" in circumstances()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert "bytecode" not in circumstances()
