"""Build programs from the Go modules pinned in `controlplane/`, once for each pin."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import build_progress, files, go_tool
from operator_runner.devcluster.errors import BuildFailed
from operator_runner.devcluster.recipes import Recipe

_NO_SPACE = "no space left on device"


def build(recipe: Recipe, target: Path, console: Console) -> None:
    """Build every tool of `recipe` into the folder `target`, which is created atomically.

    An interrupted build resumes from Go's build cache. Raises ClusterError.
    """
    files.private_folder(target.parent)
    with _one_at_a_time(recipe, target, console):
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
    with log.open("w") as record:
        progress = build_progress.BuildProgress(console, record, recipe)
        steps = (
            ("list", [go, "list", "-deps", *recipe.options, "-f", build_progress.LIST_FORMAT]),
            ("build", [go, "build", "-v", *recipe.options, "-o", f"{draft}/"]),
        )
        for step, command in steps:
            if progress.run(
                step,
                [*command, "tool"],
                cwd=recipe.source,
                environment=go_tool.environment(recipe.environment),
                out=draft,
            ):
                raise _failure(recipe, log)


def _module_folder(go: str, recipe: Recipe, module: str) -> Path:
    """Return where Go keeps the sources of a module that the recipe requires."""
    answer = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", module],
        cwd=recipe.source,
        env=go_tool.environment(recipe.environment),
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
    return go_tool.find(needed, recipe.what, instead=recipe.instead)


@contextmanager
def _one_at_a_time(recipe: Recipe, target: Path, console: Console) -> Iterator[None]:
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"Another command is building {recipe.what}; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
