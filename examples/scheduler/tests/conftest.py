"""The tests of the role use the fixture `reconcile` of operator-runner."""

from __future__ import annotations

import pytest

pytest_plugins = ["operator_runner.testing"]


@pytest.fixture(scope="session")
def operator_environment() -> dict[str, str]:
    """Return the namespace of the objects of this operator."""
    return {"WATCH_NAMESPACE": "default"}
