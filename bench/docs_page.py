"""Write the measured parts of docs/performance.md."""

from __future__ import annotations

import os
import platform
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
PICTURE = DOCS / "performance.svg"


def write_part(name: str, text: str, page: Path = PAGE) -> None:
    """Replace the text between the markers of a part. Raises ValueError without markers."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    old = page.read_text()
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n{text.strip()}\n{end}", old)
    if count != 1:
        raise ValueError(f"{page} needs the lines {begin} and {end} once each")
    page.write_text(new)


def circumstances() -> str:
    """Return date, cores, Python version and load of a measurement.

    Python without bytecode makes ansible-runner slower, so that it is named.
    """
    bytecode = " without writing bytecode" if sys.dont_write_bytecode else ""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}{bytecode}, load of the last 1, 5 and 15 minutes {load}"
    )
