"""The table that `make attack` prints, of a report as pytest writes it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.attack_table import attack_table


def test_each_attack_has_its_promise_and_its_result(tmp_path: Path) -> None:
    """With the group that pytest-xdist adds to a name, and with parameters."""
    suite = ET.Element("testsuite")
    module, function = __name__, test_each_attack_has_its_promise_and_its_result.__name__
    ET.SubElement(suite, "testcase", classname=module, name=f"{function}[cold]@/a/b.py")
    failed = ET.SubElement(suite, "testcase", classname=module, name=function)
    ET.SubElement(failed, "failure")
    report = tmp_path / "attack.xml"
    report.write_bytes(ET.tostring(suite))
    header, held, not_held = (line.split(maxsplit=1) for line in attack_table(report))
    promise = "With the group that pytest-xdist adds to a name, and with parameters."
    assert [header[0], held[0], not_held[0]] == ["held", "yes", "NO"]
    for line in (held, not_held):
        assert line[1].endswith(promise)
        assert "@" not in line[1]
