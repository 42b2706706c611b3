"""Names in the package: a reader finds a class by its name alone."""

from __future__ import annotations

import re
from collections import Counter

from tests.support.operator import REPOSITORY

_CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)


def test_class_names_are_unique() -> None:
    """Two classes of one name, private ones included, can only be distinguished by their module."""
    package = REPOSITORY / "operator_runner"
    names = Counter(
        name for path in package.rglob("*.py") for name in _CLASS.findall(path.read_text())
    )
    assert len(names) > 300
    assert [name for name, count in names.items() if count > 1] == []
