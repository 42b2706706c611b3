"""`python -m tests.support.failed_tests DIRECTORY`: the failed tests of all tiers in one list.

`make test` prints it last: the report of a tier may be thousands of lines above.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

LONGEST_MESSAGE = 400
"""Characters of a message in the list; the whole one is in the report of its tier."""


def failed_tests(reports: Path) -> list[str]:
    """Return a line for each failed test in the JUnit XML files of a directory, in file order."""
    return [
        line
        for report in sorted(reports.glob("*.xml"))
        for case in ET.parse(report).iter("testcase")
        if (line := _failure(report.stem, case))
    ]


def _failure(tier: str, case: ET.Element) -> str:
    found = [each for each in case if each.tag in ("failure", "error")]
    if not found:
        return ""
    message = " ".join(" ".join(each.get("message", "") for each in found).split())
    return f"{tier}: {case.get('classname')}::{case.get('name')}: {message[:LONGEST_MESSAGE]}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in failed_tests(Path(sys.argv[1])))
