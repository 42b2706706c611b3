"""Output of a migration."""

from __future__ import annotations

import io
from collections import Counter

from rich.console import Console

from operator_runner.tools.storage_migration.display import Display
from operator_runner.tools.storage_migration.migrate import MigrationResult, MigrationTally
from operator_runner.tools.storage_migration.objects import RewriteResult
from operator_runner.tools.storage_migration.target import Checkpoint, MigrationTarget

TARGET = MigrationTarget(
    "webs.example.com", "u", 1, "example.com", "webs", "v2", ("v1", "v2"), ("v1", "v2")
)


class Shown:
    """A display without a terminal, and its text."""

    def __init__(self, *, dry_run: bool = False) -> None:
        self._out = io.StringIO()
        self.display = Display(Console(file=self._out, width=80), dry_run=dry_run)

    @property
    def lines(self) -> list[str]:
        return self._out.getvalue().splitlines()


def tally(**counts: int) -> MigrationTally:
    results = Counter({RewriteResult.REWRITTEN: counts.get("rewritten", 0)})
    return MigrationTally(counts.get("before", 0), results, counts.get("failed", 0))


def test_a_resumed_migration_shows_its_position() -> None:
    """It shows the stored versions, the resumed position, and the counts."""
    shown = Shown()
    shown.display.started(TARGET, Checkpoint("u", 1, "t", 250))
    shown.display.progressed(tally(before=250, rewritten=1), 500)
    shown.display.finished(TARGET, tally(before=250, rewritten=250), MigrationResult.DONE)
    assert shown.lines == [
        "webs.example.com: migrating from v1, v2 to v2",
        "  resuming after 250 objects",
        "webs.example.com: 500 objects: 250 done before, 250 rewritten",
        "webs.example.com: all objects are stored in v2",
    ]


def test_failures_are_named_and_then_counted() -> None:
    """If a webhook is down, its message is printed twenty times, not for each object."""
    shown = Shown()
    shown.display.started(TARGET, None)
    for number in range(30):
        shown.display.failed(TARGET, {"namespace": "ns", "name": f"w{number}"}, "[down]")
    shown.display.finished(TARGET, tally(failed=30), MigrationResult.INCOMPLETE)
    assert shown.lines[1] == "  webs ns/w0: [down]"
    assert shown.lines[20:22] == [
        "  webs ns/w19: [down]",
        "  further failures are counted, not listed",
    ]
    assert "30 failed" in shown.lines[-2]
    assert "status.storedVersions stays v1, v2: repair these objects" in shown.lines[-1]


def test_a_dry_run_promises_nothing() -> None:
    """It prints the numbers of tried and rejected objects."""
    shown = Shown(dry_run=True)
    shown.display.finished(TARGET, tally(rewritten=3, failed=1), MigrationResult.INCOMPLETE)
    assert shown.lines[0].endswith("4 objects tried, 1 refused; nothing was written")
