"""The table at the end of `make test-matrix`."""

from __future__ import annotations

from pathlib import Path

from tests.support.matrix_table import matrix_table


def test_each_pair_has_its_counts_and_result(tmp_path: Path) -> None:
    """Errors count as failures; a pair without a report or without a test has not passed."""
    for pair, counts in {
        "3.13-2.21": 'tests="5" failures="0" errors="0" skipped="1"',
        "3.13-2.20": 'tests="5" failures="1" errors="1" skipped="0"',
        "3.12-2.19": 'tests="0" failures="0" errors="0" skipped="0"',
    }.items():
        (tmp_path / f"{pair}.xml").write_text(f"<testsuites><testsuite {counts}/></testsuites>")
    table = matrix_table(tmp_path, ["3.13-2.21", "3.13-2.20", "3.12-2.19", "3.11-2.19"])
    assert [line.split() for line in table[1:]] == [
        ["3.13", "2.21", "4", "0", "1", "passed"],
        ["3.13", "2.20", "3", "2", "0", "failed"],
        ["3.12", "2.19", "0", "0", "0", "failed"],
        ["3.11", "2.19", "-", "-", "-", "did", "not", "run"],
    ]
