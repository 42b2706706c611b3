"""Show how far a build is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from operator_runner.devcluster.recipes import Recipe

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
