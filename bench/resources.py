"""Create many resources at once."""

from __future__ import annotations

import time

from bench.api import Json, Kind, is_successful
from bench.environment import Site
from bench.figures import Cost

_TIMEOUT_SECONDS = 1800.0


def names(count: int) -> set[str]:
    """Return the names of `count` resources."""
    return {f"r{place:04}" for place in range(count)}


def create_and_wait(site: Site, kind: Kind, count: int, spec: Json, *, existing: int = 0) -> Cost:
    """Create resources up to `count`; return the time until all are Successful, and the CPU time.

    The CPU time is that of all processes of the operator until none runs. Raises BenchError.
    """
    site.wait_for_quiet()
    ended, cpu, begin = site.ended(), site.cpu_seconds(), time.monotonic()
    new = names(count) - names(existing)
    for name in sorted(new):
        site.api.create(kind, site.namespace, name, spec)
    # A watch of all resources would take CPU time of the operator.
    site.wait_for_end(ended + len(new), _TIMEOUT_SECONDS)
    with site.log_in_timeouts():
        site.api.until(kind, site.namespace, new, is_successful, _TIMEOUT_SECONDS, check=site.ended)
    wall = time.monotonic() - begin
    site.wait_for_quiet(timeout=_TIMEOUT_SECONDS)
    return Cost(wall, site.cpu_seconds() - cpu)
