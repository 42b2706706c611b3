"""One contract for all launchers: every case runs through each, and gives the same record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.launching import Both, Launchers


@pytest.fixture(scope="session", autouse=True)
def steady_environment() -> Iterator[None]:
    """Give both launchers one environment, in which sets have one order in all processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")
        for name in ("COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
            # pytest imports readline, whose C library sets them behind the back of os.environ.
            os.unsetenv(name)
        yield


@pytest.fixture(scope="session")
def launchers(steady_environment: None) -> Iterator[Launchers]:
    """Share the launchers: a fork server takes seconds to start."""
    del steady_environment  # they inherit it
    with Launchers(AnsibleSettings(skip_facts=True)) as opened:
        yield opened


@pytest.fixture
def both(launchers: Launchers, tmp_path: Path) -> Both:
    """Run a project through both launchers, compare, and return the record."""
    return Both(launchers, tmp_path)
