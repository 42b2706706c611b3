"""A pytest plugin for the tests of roles: reconcile a resource, and check the outcome.

In `tests/conftest.py` of an operator project:

    pytest_plugins = ["operator_runner.testing"]

Then tests use the fixture `reconcile`. See docs/testing.md and docs/adr/0042-testing-kit.md.
"""

from __future__ import annotations

from operator_runner.testing.fixtures import (
    control_plane,
    crd_files,
    namespace,
    operator_environment,
    operator_flags,
    operator_process,
    operator_project,
    pytest_runtest_makereport,
    reconcile,
)
from operator_runner.testing.outcome import (
    Failure,
    FieldDifference,
    Outcome,
    Task,
    WrittenObject,
    WrittenObjects,
)
from operator_runner.testing.reconciling import OperatorProcessError, Reconcile

__all__ = [
    "Failure",
    "FieldDifference",
    "OperatorProcessError",
    "Outcome",
    "Reconcile",
    "Task",
    "WrittenObject",
    "WrittenObjects",
    "control_plane",
    "crd_files",
    "namespace",
    "operator_environment",
    "operator_flags",
    "operator_process",
    "operator_project",
    "pytest_runtest_makereport",
    "reconcile",
]
