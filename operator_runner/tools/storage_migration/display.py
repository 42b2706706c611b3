"""Tells a person how a migration goes: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from operator_runner.core.model import Json
from operator_runner.tools.storage_migration.migrate import End, Tally
from operator_runner.tools.storage_migration.objects import Result
from operator_runner.tools.storage_migration.target import Place, Target

_LINE_EVERY = 5.0
"""Seconds between lines where there is no terminal."""
_NAMED = 20
"""Failures that are told one by one: where a webhook is down, all are the same."""


class Display:
    """Shows the migrations of one command on a console, as `migrate.Report`."""

    def __init__(self, console: Console, *, dry_run: bool) -> None:
        """Show nothing yet."""
        self._console = console
        self._dry_run = dry_run
        self._last_line = 0.0
        self._failures = 0
        self._bar: Progress | None = None

    def began(self, target: Target, place: Place | None) -> None:
        """Tell the versions, and how much is done already."""
        self._failures = 0
        self._last_line = time.monotonic()
        stored = ", ".join(target.stored)
        self._say(f"{target.name}: stored in {stored}; to be in {target.storage} alone")
        if place is not None:
            self._say(f"  going on after {place.seen} objects")
        if self._console.is_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("objects"))
            self._bar = Progress(
                *columns, TimeRemainingColumn(), console=self._console, transient=True
            )
            self._bar.add_task("", total=None)
            self._bar.start()

    def nothing_to_do(self, target: Target) -> None:
        """Tell that there is nothing to do."""
        self._say(f"{target.name}: all objects are stored in {target.storage} already")

    def moved(self, tally: Tally, total: int) -> None:
        """Move the bar, or print a line if the last one is long ago."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=tally.seen, total=total)
        elif time.monotonic() - self._last_line >= _LINE_EVERY:
            self._last_line = time.monotonic()
            self._say(f"  {tally.seen} of {total} objects")

    def failed(self, target: Target, metadata: Json, reason: str) -> None:
        """Name an object that is stored as it was."""
        self._failures += 1
        path = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        if self._failures <= _NAMED:
            self._say(f"  {target.plural} {path}: {reason}")
        elif self._failures == _NAMED + 1:
            self._say("  further failures are only counted")

    def stopping(self) -> None:
        """Tell that a signal has come."""
        self._say("  interrupted: writes under way come to their end; again, and they do not")

    def ended(self, target: Target, tally: Tally, end: End) -> None:
        """Tell the figures, and what follows from them."""
        self.close()
        for line in _summary(target, tally, end, dry_run=self._dry_run):
            self._say(f"{target.name}: {line}")

    def close(self) -> None:
        """Take the bar away; the lines stay."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, line: str) -> None:
        self._console.print(escape(line), highlight=False, soft_wrap=True)


def _summary(target: Target, tally: Tally, end: End, *, dry_run: bool) -> list[str]:
    if dry_run:
        counts = f"{tally.seen} objects tried, {tally.failed} refused; nothing was written"
    else:
        found = [(tally.results[result], result.value) for result in Result]
        figures = [(tally.before, "done before"), *found, (tally.failed, "failed")]
        parts = [f"{count} {what}" for count, what in figures if count]
        counts = f"{tally.seen} objects: {', '.join(parts) or 'nothing to rewrite'}"
    stored = ", ".join(target.stored)
    match end:
        case End.DONE if dry_run:
            return [counts]
        case End.DONE:
            return [counts, f"stored in {target.storage} alone now"]
        case End.INCOMPLETE:
            cure = f"status.storedVersions stays {stored}: repair these objects, then run it again"
            return [counts, cure]
        case End.INTERRUPTED:
            return [counts, "interrupted; run it again to go on from there"]
