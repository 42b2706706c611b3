"""`operator-runner init` and `create api` as a user calls them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.command import run_command

OPERATOR_RUNNER = Path(sys.executable).parent / "operator-runner"


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `operator-runner` in a directory."""
    return run_command(arguments, root)


def init(root: Path, *flags: str) -> None:
    """Make a project in a new directory."""
    root.mkdir()
    done = run(root, "init", *flags)
    assert done.returncode == 0, done.stderr


def create_api(root: Path, kind: str, *flags: str) -> None:
    """Add a kind of the group `cache` to a project."""
    done = run(
        root, "create", "api", "--group=cache", "--version=v1alpha1", f"--kind={kind}", *flags
    )
    assert done.returncode == 0, done.stderr
