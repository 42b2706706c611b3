"""What all tests share: their rules, and the local cluster that they run against."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that do not say in a sentence what they show."""
    silent = [
        item.nodeid
        for item in items
        if isinstance(item, pytest.Function) and not item.function.__doc__
    ]
    if silent:
        raise pytest.UsageError("tests without a docstring: " + ", ".join(silent))
