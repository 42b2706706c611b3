"""`python -m tests.support.matrix_table DIRECTORY PAIR...`: the results of `make test-matrix`.

A pair such as `3.13-2.20` has its JUnit XML in the directory. Imports the standard library only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

_ROW = "{:<8}{:<14}{:>8}{:>8}{:>9}  {}"


def matrix_table(reports: Path, pairs: list[str]) -> list[str]:
    """Return a header, and a line for each pair."""
    header = _ROW.format("Python", "ansible-core", "passed", "failed", "skipped", "result")
    return [header, *(_row(reports / f"{pair}.xml", *pair.split("-")) for pair in pairs)]


def _row(report: Path, python: str, core: str) -> str:
    if not report.exists():
        return _ROW.format(python, core, "-", "-", "-", "did not run")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in ET.parse(report).iter("testsuite"):
        for name in counts:
            counts[name] += int(suite.get(name, 0))
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    result = "failed" if failed or not passed else "passed"
    return _ROW.format(python, core, passed, failed, counts["skipped"], result)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in matrix_table(Path(sys.argv[1]), sys.argv[2:]))
