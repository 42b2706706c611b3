"""Builds of programs with Go."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from operator_runner.devcluster import recipes
from operator_runner.devcluster.building import build
from operator_runner.devcluster.errors import BuildFailed

_GO = """#!/bin/sh
case $1 in
env) echo go1.99 ;;
build) echo some/package; {} ;;
esac
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the program that is called as Go."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "go"


def test_a_failed_build_is_recorded_and_quoted(go: Path, tmp_path: Path) -> None:
    """The log has the output of Go, the error its end, and nothing is left of the build."""
    go.write_text(_GO.format("printf 'x.go:1: broken'; exit 3"))
    go.chmod(0o755)
    shown = io.StringIO()
    target = tmp_path / "cache" / "v1"
    with pytest.raises(BuildFailed, match=r"x\.go:1: broken"):
        build(recipes.kubernetes(), target, Console(file=shown, width=300))
    log = target.with_name("v1.log")
    assert log.read_text().splitlines() == ["some/package", "x.go:1: broken"]
    assert "compiled from source" in shown.getvalue()
    assert {path.name for path in target.parent.iterdir()} == {"v1.log", "v1.lock"}


def test_a_build_names_packages_and_programs_by_their_names(go: Path, tmp_path: Path) -> None:
    """Where the output is not a terminal, a line of it is printed now and then."""
    go.write_text(_GO.format('seq 250; while [ "$1" != -o ]; do shift; done; touch "$2/server"'))
    go.chmod(0o755)
    shown = io.StringIO()
    target = tmp_path / "cache" / "v1"
    build(recipes.kubernetes(), target, Console(file=shown, width=300))
    assert [path.name for path in target.iterdir()] == ["etcd"]
    assert "  250 packages: 249\n" in shown.getvalue()
