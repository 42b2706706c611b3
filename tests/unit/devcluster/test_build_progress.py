"""Progress display from the output of Go."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import recipes
from operator_runner.devcluster.building import BuildProgress, Counts


def _after(step: str, lines: Iterable[str], counts: Counts | None = None) -> Counts:
    counts = counts or Counts()
    for line in lines:
        counts = counts.after(step, line)
    return counts


def test_downloads_are_counted_in_every_step() -> None:
    """Go fetches modules while it lists packages and sometimes while it builds."""
    line = "go: downloading k8s.io/api v0.36.3"
    assert _after("list", [line, line]).downloaded == 2
    assert _after("build", [line]) == Counts(downloaded=1)


def test_packages_in_the_cache_need_not_be_compiled() -> None:
    """Only packages that are neither installed nor in Go's build cache count."""
    lines = [
        "true stale dependency: fmt",
        "true not installed but available in build cache",
        "true build ID mismatch",
        "false ",
    ]
    assert _after("list", lines).to_compile == 2


def test_each_named_package_is_one_compiled() -> None:
    """`go build -v` prints a package in each line; messages are not counted."""
    lines = ["internal/abi", "k8s.io/api/core/v1", "# k8s.io/api/core/v1", "x.go:1: syntax error"]
    assert _after("build", lines).compiled == 2


def test_the_description_follows_the_build() -> None:
    """It shows downloads, then packages, and at the end programs."""
    counts = Counts(downloaded=3, to_compile=2)
    assert counts.describe("list", 0, 7) == "fetching source: 3 modules"
    assert counts.describe("build", 0, 7) == "compiling: 0 of 2 packages"
    done = _after("build", ["a", "b"], counts)
    assert done.describe("build", 4, 7) == "linking: 4 of 7 programs"


def test_the_fraction_never_leaves_its_bounds() -> None:
    """More packages than were announced do not overrun the bar, and none do not break it."""
    assert Counts().fraction() == 0.0
    assert Counts(to_compile=4, compiled=1).fraction() == 0.25
    assert Counts(to_compile=4, compiled=9).fraction() == 1.0


def test_a_step_is_recorded_and_its_exit_code_returned(tmp_path: Path) -> None:
    """The log has the output of Go, and the exit status shows a failure."""
    record, shown = io.StringIO(), io.StringIO()
    progress = BuildProgress(Console(file=shown, width=200), record, recipes.olm())
    program = "print('some/package'); print('x.go:1: broken', end=''); raise SystemExit(3)"
    code = progress.run(
        "build", [sys.executable, "-c", program], cwd=tmp_path, environment={}, out=tmp_path
    )
    assert code == 3
    assert record.getvalue().splitlines() == ["some/package", "x.go:1: broken"]
    assert "compiled from source" in shown.getvalue()
