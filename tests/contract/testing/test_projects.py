"""`pytest` in operator projects that use `operator_runner.testing`, as their authors call it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from operator_runner.testing import Reconcile
from tests.support import examples

SHORT = ("tstest",)
"""Examples whose own tests `make test` runs; `make slow` runs all."""
PYTEST = Path(sys.executable).parent / "pytest"
CONFTEST = 'pytest_plugins = ["operator_runner.testing"]\n'
TEST = """\
def test_a_report_has_numbers(reconcile):
    report = {
        "apiVersion": "testing.example.com/v1",
        "kind": "Report",
        "metadata": {"name": "weekly"},
        "spec": {"title": "Weekly", "source": "numbers"},
    }
    assert reconcile(report).successful
"""


def run_pytest(project: Path, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a project."""
    # The options of this repository are not those of the project.
    options = ["--config-file=/dev/null", f"--rootdir={project}", "-p", "no:cacheprovider"]
    return subprocess.run(
        [PYTEST, *options, "tests"],
        cwd=project,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.parent.name, marks=() if path.parent.name in SHORT else pytest.mark.slow)
        for path in examples.FOLDER.glob("*/tests")
    ],
)
def test_the_tests_of_an_example_pass(name: str, control_plane: Path) -> None:
    """They run on a control plane."""
    done = run_pytest(examples.FOLDER / name, control_plane)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failed_test_shows_task_and_reason(
    operator_project: Path, control_plane: Path, reconcile: Reconcile, tmp_path: Path
) -> None:
    """In the assertion, and with the output of the play below it.

    The CRD is that of this cluster, which `reconcile` has installed, and stays.
    """
    project = Path(shutil.copytree(operator_project, tmp_path / "project"))
    (project / "tests").mkdir()
    (project / "tests" / "conftest.py").write_text(CONFTEST)
    (project / "tests" / "test_report.py").write_text(TEST)
    done = run_pytest(project, control_plane)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    reasons = [line for line in done.stdout.splitlines() if line.startswith("E  ")]
    assert "<Report/weekly failed: task 'Check that there are numbers' (roles/" in reasons[-1]
    assert "Reconcile 1: <Report/weekly failed" in done.stdout
    assert "The ConfigMap numbers does not exist; create it" in done.stdout
    assert reconcile.outcomes == []
