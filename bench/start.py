"""Measure the start of an operator: time until it is ready, and CPU time until it is idle."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import accounting
from bench.api import EMPTY
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.figures import Cost, Goal, Row, hundredths

_TIMEOUT_SECONDS = 60.0


def measure_start(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Measure starts without resources.

    Wall time is from exec to the success of /readyz; CPU time is that of all processes until
    Ansible is loaded and the processes of the first run are forked.
    """
    with environment.site(Setup("warm", EMPTY)) as site:
        cost = Cost.median([start_again(site) for _ in range(repetitions)])
    # Without limits, because absolute times depend on the machine.
    yield _row("start: until the operator is ready", cost.wall, Goal(None, 1))
    yield _row("start: CPU time", cost.cpu, Goal(None, 2))


def start_again(site: Site) -> Cost:
    """Start the operator of a site again, and wait until it is idle."""
    ready = seconds_until_ready(site)
    wait_until(lambda: _is_loaded(site), "Ansible is loaded", _TIMEOUT_SECONDS)
    site.wait_for_quiet()
    return Cost(ready, site.cpu_seconds())


def seconds_until_ready(site: Site) -> float:
    """Kill the operator of a site and start it; return the time until /readyz succeeds."""
    site.kill()
    begun = time.monotonic()
    site.start(wait=False)
    site.wait_for_ready(_TIMEOUT_SECONDS)
    return time.monotonic() - begun


def _is_loaded(site: Site) -> bool:
    """Return whether the fork server has forked the processes of the first run."""
    return any(accounting.children(server) for server in site.fork_servers())


def _row(work: str, ours: float, goal: Goal) -> Row:
    return Row(work, hundredths(ours), "", ours, goal, hundredths)
