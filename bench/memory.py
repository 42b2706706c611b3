"""Measure the memory of an idle operator, and of each in-flight run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bench import accounting
from bench.api import PAUSE, THREE
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.figures import Goal, Row, hundredths, mebibytes
from bench.single import reconcile_steadily, tick

_MB = 1024**2
_RUNS = 3
_PROCESSES = 2
"""Processes of a run: supervisor and play, in which the module runs."""
_NEXT, _PREPARED = 1, 2
"""The next run, and its processes that are kept ready: supervisor and play."""
_IDLE = "5s"
_COMPRESSED_BYTES = 25 * _MB
"""More than the libraries of a fork server whose memory is compressed."""
_QUIET_SECONDS = 1.0
"""Time without a new process after which a run is inside its task."""


def measure_memory(environment: BenchEnvironment) -> Iterator[Row]:
    """Measure an operator after a run, and with runs inside a task.

    Memory that a run shares with the fork server is counted there: the memory of a run is its
    increase of the total proportional set size.
    """
    with environment.site(Setup("warm", THREE)) as site:
        _reconcile(site)
        ready = accounting.memory(site.family())
        yield _row("memory: operator and fork server, after a run", ready, 200, None)
    yield from _measure_idle(
        environment, "--fork-server-compress-after", "Ansible compressed", has_no_memory
    )
    yield from _measure_idle(
        environment, "--fork-server-idle-timeout", "Ansible unloaded", _has_ended
    )
    flags = (f"--max-runs={_RUNS}", f"--max-concurrent-reconciles={_RUNS}")
    with environment.site(Setup("warm", PAUSE, flags)) as site:
        # Processes kept ready for the next run exist in both measurements.
        first = _with_runs(site, 1)
        each = (_with_runs(site, _RUNS) - first) / (_RUNS - 1)
        yield _row("memory: each run in flight", each, 40, 20)


def _measure_idle(
    environment: BenchEnvironment, flag: str, state: str, is_reached: Callable[[Site], bool]
) -> Iterator[Row]:
    """Measure an operator that has been idle for the time of the flag, and the next run."""
    with environment.site(Setup("warm", THREE, (f"{flag}={_IDLE}",))) as site:
        _reconcile(site)
        wait_until(lambda: is_reached(site), state, 60)
        idle = accounting.memory(site.family())
        ended, begun = site.ended(), time.monotonic()
        tick(site, ended)
        site.wait_for_end(ended + 1)
        taken = time.monotonic() - begun
    yield _row(f"memory: operator, idle, {state}", idle, 100, 90)
    yield Row(
        f"first run after that ({state})", hundredths(taken), "", taken, Goal(10, 2), hundredths
    )


def has_no_memory(site: Site) -> bool:
    """Return whether the fork server has no forks, and waits for its memory."""
    (_, *others) = site.family()
    return len(others) == 1 and accounting.memory(others) < _COMPRESSED_BYTES


def _has_ended(site: Site) -> bool:
    """Return whether the fork server has exited."""
    return len(site.family()) == 1


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
