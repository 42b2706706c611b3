"""One contract for all launchers: every case runs through each, and gives the same record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.settings import AnsibleSettings
from tests.contract.execution.launchers.launching import Both, Launchers


@pytest.fixture(scope="session", autouse=True)
def same_hashes() -> Iterator[None]:
    """Have sets in one order in all processes, so that what prints one can be compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")
        yield


@pytest.fixture(scope="session")
def launchers(same_hashes: None) -> Iterator[Launchers]:
    """Share the launchers: a fork server takes seconds to start."""
    del same_hashes  # they inherit it
    with Launchers(AnsibleSettings(skip_facts=True)) as opened:
        yield opened


@pytest.fixture
def both(launchers: Launchers, tmp_path: Path) -> Both:
    """Run a project through both launchers, compare, and return the record."""
    return Both(launchers, tmp_path)
