"""The fixtures of the testing kit, for a project whose roles do little."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.testing import (
    crd_files,
    namespace,
    operator_environment,
    operator_flags,
    operator_process,
    reconcile,
)

__all__ = [
    "crd_files",
    "namespace",
    "operator_environment",
    "operator_flags",
    "operator_process",
    "reconcile",
]


@pytest.fixture(scope="session")
def operator_project() -> Path:
    """Return the project."""
    return Path(__file__).parent / "project"
