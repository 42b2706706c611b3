"""Display the progress of a migration: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from operator_runner.core.model import Json
from operator_runner.tools.storage_migration.migrate import MigrationResult, MigrationTally
from operator_runner.tools.storage_migration.objects import RewriteResult
from operator_runner.tools.storage_migration.target import Checkpoint, MigrationTarget

_LINE_INTERVAL_SECONDS = 5.0
"""Time between lines without a terminal."""
_MAX_FAILURES = 20
"""Failures that are listed: while a webhook is down, all have the same message."""


class Display:
    """Shows the migrations of one command on a console, as `migrate.ProgressReporter`."""

    def __init__(self, console: Console, *, dry_run: bool) -> None:
        """Show nothing yet."""
        self._console = console
        self._dry_run = dry_run
        self._last_line = 0.0
        self._failures = 0
        self._bar: Progress | None = None

    def started(self, target: MigrationTarget, checkpoint: Checkpoint | None) -> None:
        """Print the versions and the checkpoint."""
        self._failures = 0
        self._last_line = time.monotonic()
        stored = ", ".join(target.stored)
        self._print(f"{target.name}: migrating from {stored} to {target.storage}")
        if checkpoint is not None:
            self._print(f"  resuming after {checkpoint.seen} objects")
        if self._console.is_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("objects"))
            self._bar = Progress(
                *columns, TimeRemainingColumn(), console=self._console, transient=True
            )
            self._bar.add_task("", total=None)
            self._bar.start()

    def already_migrated(self, target: MigrationTarget) -> None:
        """Print that the CRD needs no migration."""
        self._print(f"{target.name}: all objects are stored in {target.storage} already")

    def progressed(self, tally: MigrationTally, total: int) -> None:
        """Update the bar, or print a line if the interval has passed."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=tally.seen, total=total)
        elif time.monotonic() - self._last_line >= _LINE_INTERVAL_SECONDS:
            self._last_line = time.monotonic()
            self._print(f"  {tally.seen} of {total} objects")

    def failed(self, target: MigrationTarget, metadata: Json, reason: str) -> None:
        """Print an object that was not rewritten, up to a maximum."""
        self._failures += 1
        path = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        if self._failures <= _MAX_FAILURES:
            self._print(f"  {target.plural} {path}: {reason}")
        elif self._failures == _MAX_FAILURES + 1:
            self._print("  further failures are counted, not listed")

    def stopping(self) -> None:
        """Print that a signal was received."""
        self._print("  interrupted: finishing in-flight writes; interrupt again to abort")

    def finished(
        self, target: MigrationTarget, tally: MigrationTally, end: MigrationResult
    ) -> None:
        """Print the summary, and the next step."""
        self.close()
        for line in _summary(target, tally, end, dry_run=self._dry_run):
            self._print(f"{target.name}: {line}")

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, line: str) -> None:
        self._console.print(escape(line), highlight=False, soft_wrap=True)


def _summary(
    target: MigrationTarget, tally: MigrationTally, end: MigrationResult, *, dry_run: bool
) -> list[str]:
    if dry_run:
        counts = f"{tally.seen} objects tried, {tally.failed} refused; nothing was written"
    else:
        found = [(tally.results[result], result.value) for result in RewriteResult]
        figures = [(tally.before, "done before"), *found, (tally.failed, "failed")]
        parts = [f"{count} {what}" for count, what in figures if count]
        counts = f"{tally.seen} objects: {', '.join(parts) or 'nothing to rewrite'}"
    stored = ", ".join(target.stored)
    match end:
        case MigrationResult.DONE if dry_run:
            return [counts]
        case MigrationResult.DONE:
            return [counts, f"all objects are stored in {target.storage}"]
        case MigrationResult.INCOMPLETE:
            hint = f"status.storedVersions stays {stored}: repair these objects, then run again"
            return [counts, hint]
        case MigrationResult.INTERRUPTED:
            return [counts, "interrupted; run again to resume"]
