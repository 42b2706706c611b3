"""Measure the memory of an operator after a run, and of each in-flight run."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import accounting
from bench.api import PAUSE, THREE
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.figures import Goal, Row, mebibytes
from bench.steady import reconcile_steadily

_MB = 1024**2
_FIRST, _RUNS = 2, 4
"""Runs of the two measurements; after a single run, none is kept ready for the next one."""
_PROCESSES = 2
"""Processes of a run: supervisor and play, in which the module runs."""
_NEXT, _PREPARED = 1, 2
"""The next run, and its processes that are kept ready: supervisor and play."""
_QUIET_SECONDS = 1.0
"""Time without a new process after which a run is inside its task."""


def measure_memory(environment: BenchEnvironment) -> Iterator[Row]:
    """Measure an operator after a run, and with runs inside a task.

    Memory that a run shares with the fork server is counted there: the memory of a run is its
    increase of the total proportional set size.
    """
    with environment.site(Setup(THREE)) as site:
        _reconcile(site)
        ready = accounting.memory(site.family())
        yield _row("memory: operator and fork server, after a run", ready, 200, None)
    flags = (f"--max-runs={_RUNS}", f"--max-concurrent-reconciles={_RUNS}")
    with environment.site(Setup(PAUSE, flags)) as site:
        # Processes kept ready for the next run exist in both measurements.
        first = _with_runs(site, _FIRST)
        each = (_with_runs(site, _RUNS) - first) / (_RUNS - _FIRST)
        yield _row("memory: each run in flight", each, 40, 20)


def _reconcile(site: Site) -> None:
    """Create a resource, and reconcile it until nothing is loaded for the first time."""
    site.api.create(THREE, site.namespace, "a", {"size": 1})
    site.wait_for_end(1)
    reconcile_steadily(site)


def _with_runs(site: Site, count: int) -> int:
    """Return the total memory while `count` runs are inside their task."""
    for place in range(len(site.api.list(PAUSE, site.namespace)), count):
        site.api.create(PAUSE, site.namespace, f"p{place}", {})
    wait_until(lambda: _are_inside(site, count), f"{count} runs are inside a task", 60)
    return accounting.memory(site.family())


def _row(work: str, ours: float, limit: int, target: int | None) -> Row:
    goal = Goal(limit * _MB, None if target is None else target * _MB)
    return Row(work, mebibytes(ours), "", ours, goal, mebibytes)


def _are_inside(site: Site, count: int) -> bool:
    """Return whether all runs have their processes, and none starts or ends."""
    before = site.family()
    if len(site.runs()) != count + _NEXT or len(before) < 2 + _PROCESSES * count + _PREPARED:
        return False
    time.sleep(_QUIET_SECONDS)
    return set(before) == set(site.family())
