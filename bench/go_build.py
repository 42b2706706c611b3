"""Build the operators in Go with which operator-runner is compared."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.errors import BenchError
from operator_runner.devcluster import go_tool

BUILD = Path("build/bench").resolve()
"""Folder of what is built for the bench."""


def build_go(module: Path, package: str, oldest: tuple[int, int]) -> Path:
    """Build a package that the Go module in this folder has or requires; return the program.

    A second time takes a second. `oldest` is the version of Go that the module needs. Raises
    BenchError and ClusterError.
    """
    program = BUILD / "go" / module.name
    run_go(module, oldest, "build", "-o", str(program), package)
    return program


def run_go(module: Path, oldest: tuple[int, int], *arguments: str) -> str:
    """Run a command of Go in the folder of a module; return its output.

    Raises BenchError and ClusterError.
    """
    done = subprocess.run(
        [go_tool.find(oldest, str(module)), *arguments],
        cwd=module,
        env=go_tool.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"go {arguments[0]} in {module} failed: {done.stderr}")
    return done.stdout
