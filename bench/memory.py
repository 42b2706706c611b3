"""Memory: operator and fork server without runs, and what each run in flight adds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import accounting
from bench.api import PAUSE, THREE
from bench.environment import Setup, Site, World, wait_until
from bench.figures import Goal, Row, mebibytes
from bench.single import reconcile_steadily

_MB = 1024**2
_RUNS = 3
_PROCESSES = 3
"""Of a run at least: supervisor, play, module."""
_NEXT, _PREPARED = 1, 2
"""The run that processes are kept ready for, and these: supervisor and play."""
_STILL = 1.0
"""Seconds without a new process after which a run is inside its task."""


def weight(world: World) -> Iterator[Row]:
    """Weigh an operator that has run something, then with runs that are inside a task.

    What a run shares with the fork server counts there already: a run's own is what it adds to
    the sum of all shares.
    """
    with world.site(Setup("warm", THREE)) as site:
        world.api.create(THREE, site.namespace, "a", {"size": 1})
        site.wait_for_end(1)
        reconcile_steadily(site)
        idle = accounting.memory(site.family())
        yield _row("memory: operator and fork server, idle", idle, 200, 140)
    flags = (f"--max-runs={_RUNS}", f"--max-concurrent-reconciles={_RUNS}")
    with world.site(Setup("warm", PAUSE, flags)) as site:
        # What is kept ready for the next run is there both times, so the others tell what one adds.
        first = _with_runs(site, 1)
        each = (_with_runs(site, _RUNS) - first) / (_RUNS - 1)
        yield _row("memory: each run in flight", each, 40, 25)


def _with_runs(site: Site, count: int) -> int:
    """Return the memory of everything while so many runs are inside their task."""
    for place in range(len(site.api.list(PAUSE, site.namespace)), count):
        site.api.create(PAUSE, site.namespace, f"p{place}", {})
    wait_until(lambda: _are_inside(site, count), f"{count} runs are inside a task", 60)
    return accounting.memory(site.family())


def _row(work: str, ours: float, bar: int, aim: int) -> Row:
    return Row(work, mebibytes(ours), "", ours, Goal(bar * _MB, aim * _MB), mebibytes)


def _are_inside(site: Site, count: int) -> bool:
    """Whether all runs are there, each with a module, and no process comes or goes any more."""
    before = site.family()
    if len(site.runs()) != count + _NEXT or len(before) < 2 + _PROCESSES * count + _PREPARED:
        return False
    time.sleep(_STILL)
    return set(before) == set(site.family())
