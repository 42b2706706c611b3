"""Pages for role authors, typed as they are printed, on a control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.author_shell import author_shell
from tests.support.doc_commands import steps
from tests.support.operator import REPOSITORY


@pytest.mark.parametrize("name", ["upgrading.md", "debugging.md"])
def test_the_commands_of_the_page_work(
    name: str, control_plane_cluster: Cluster, tmp_path: Path
) -> None:
    """Each command works as described, and prints the output below it."""
    page = steps((REPOSITORY / "docs" / name).read_text())
    assert page
    with author_shell(tmp_path, control_plane_cluster, tmp_path) as shell:
        shell.follow(page)
