"""Build programs for images from Go modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import go_tool
from operator_runner.devcluster.errors import ImageError
from operator_runner.devcluster.image_spec import GoProgram

# The first Go that refuses a module which needs a newer one.
_OLDEST = (1, 21)
_LINES = 12


def build(program: GoProgram, folder: Path, console: Console) -> bytes:
    """Return the static program that `program` describes, built in the empty `folder`.

    Dependencies have the versions that the module requires. They are downloaded and verified as
    the user's settings of Go say. Raises ClusterError.
    """
    go = go_tool.find(_OLDEST, program.package)
    console.print(f"Building {program.package} {program.version}")
    target = folder / "program"
    options = ("-trimpath", "-ldflags=-s -w", f"-tags={','.join(program.tags)}", f"-o={target}")
    # Not by `go install`: it refuses modules with `replace` directives.
    for arguments in (
        ("mod", "init", "image"),
        ("get", f"{program.package}@{program.version}"),
        ("build", *options, program.package),
    ):
        _run(program, [go, *arguments], folder)
    return target.read_bytes()


def _run(program: GoProgram, command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=go_tool.environment({"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "go: downloading " not in line]
        ending = "".join(f"\n  {line[:300]}" for line in lines[-_LINES:])
        raise ImageError(
            f"{program.package} of {program.module}@{program.version} could not be built:{ending}",
            hint="Check module, version and package in `source`; `go list -m -versions "
            f"{program.module}` lists the versions. Modules that only build with C do not work.",
        )
