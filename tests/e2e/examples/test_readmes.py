"""The README of each example, with its commands unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support import examples
from tests.support.author_shell import author_shell
from tests.support.doc_commands import steps
from tests.support.kubectl import Kubectl

SHORT = ("eru",)
"""Examples whose pages `make test` follows; `make slow` follows all."""


@pytest.fixture
def project(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Copy an example, whose CRDs are removed after the test."""
    project = examples.copy_example(request.param, tmp_path / request.param)
    try:
        yield project
    finally:
        examples.remove_crds(Kubectl(cluster.bin / "kubectl", "default"), project)


@pytest.mark.parametrize(
    "project",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.slow)
        for name in examples.NAMES
    ],
    indirect=True,
)
def test_the_commands_of_the_readme_work(project: Path, cluster: Cluster, tmp_path: Path) -> None:
    """Each command has the output of the page."""
    page = steps((project / "README.md").read_text())
    assert page
    words = [f"operator-runner cluster {command}" for command in ("up", "env", "load")]
    named = {word: f"{word} --name={cluster.name}" for word in words}
    with author_shell(project, cluster, tmp_path, named) as shell:
        shell.follow(page)
