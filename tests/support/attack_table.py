"""`python -m tests.support.attack_table REPORT`: the results of `make attack`.

The report is JUnit XML; the docstring of a test is the promise that it attacks. Imports the
standard library only.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

_ROW = "{:<6}{:<44}{}"


def attack_table(report: Path, root: Path = Path()) -> list[str]:
    """Return a header, and a line for each attack: whether the promise is held, attack, promise."""
    cases = list(ET.parse(report).iter("testcase"))
    return [_ROW.format("held", "attack", "promise"), *(_row(case, root) for case in cases)]


def _row(case: ET.Element, root: Path) -> str:
    is_held = not any(each.tag in ("failure", "error", "skipped") for each in case)
    # With several workers, pytest-xdist adds the group of a test to its name.
    name = re.sub(r"@[^]]*$", "", str(case.get("name")))
    function = name.split("[", maxsplit=1)[0]
    file = (root / str(case.get("classname")).replace(".", "/")).with_suffix(".py")
    promise = next(
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    )
    attack = name.removeprefix("test_").replace("_", " ")
    return _ROW.format("yes" if is_held else "NO", f"{attack[:42]}", promise.splitlines()[0])


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in attack_table(Path(sys.argv[1])))
