"""Pages for role authors, typed as they are printed, on a control plane."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.author_shell import author_shell
from tests.support.doc_commands import steps
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY
from tests.support.session import Session

PAGES = Path(__file__).parent / "pages"
_FIELD = "import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])"
_JQ = f"{sys.executable} -c '{_FIELD}' "
"""In place of `jq -r .`, followed by a field and a file; a machine may have no jq."""


@pytest.mark.parametrize("name", ["upgrading.md", "debugging.md"])
def test_the_commands_of_the_page_work(
    name: str, control_plane_cluster: Cluster, tmp_path: Path
) -> None:
    """Each command works as described, and prints the output below it."""
    page = steps((REPOSITORY / "docs" / name).read_text())
    assert page
    with author_shell(tmp_path, control_plane_cluster, tmp_path) as shell:
        shell.follow(page)


@pytest.fixture
def pages_shell(control_plane_cluster: Cluster, tmp_path: Path) -> Iterator[Session]:
    """Give a shell beside an operator that has a page, and another one that fails."""
    project = Path(shutil.copytree(PAGES, tmp_path / "pages"))
    with author_shell(project, control_plane_cluster, tmp_path, {"jq -r .": _JQ}) as shell:
        shell.run("kubectl apply --filename=crd.yaml")
        try:
            plain = Kubectl(control_plane_cluster.bin / "kubectl", "default")
            plain.wait_for_kinds("pages.debug.example.com")
            # docs/debugging.md has a page of this name too. The garbage collector deletes the
            # ConfigMap of that page, which a run of the new page would find until then.
            shell.run("kubectl wait --for=delete --timeout=180s configmap/page-sample")
            shell.run("kubectl apply --filename=pages.yaml")
            shell.go_on("operator-runner run")
            shell.run("kubectl wait --for=condition=Successful --timeout=240s page/page-sample")
            yield shell
        finally:
            shell.end_background()
            shell.run("kubectl delete --filename=crd.yaml")


@pytest.mark.slow
def test_the_commands_for_running_operators_work(pages_shell: Session) -> None:
    """Each command of these pages works as described, and prints the output below it."""
    docs = REPOSITORY / "docs"
    pages = [steps((docs / name).read_text()) for name in ("resources.md", "runs.md")]
    assert all(pages)
    pages_shell.follow([step for page in pages for step in page])
