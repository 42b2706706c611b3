"""Reconcile a converged resource."""

from __future__ import annotations

from bench.api import Kind
from bench.environment import Site
from bench.figures import Cost

_BATCH = 5
"""Reconciles per measurement: /proc has CPU time in hundredths of a second."""
_TICK = "bench.example.com/tick"


def reconcile_steadily(site: Site, count: int = _BATCH) -> Cost:
    """Reconcile the resource `count` times, one after the other; return the mean cost."""
    site.wait_for_quiet()
    cpu, wall = site.cpu_seconds(), _seconds(site)
    for _ in range(count):
        ended = site.ended()
        tick(site, site.setup.kind, ended)
        site.wait_for_end(ended + 1)
    site.wait_for_quiet()
    return Cost((_seconds(site) - wall) / count, (site.cpu_seconds() - cpu) / count)


def tick(site: Site, kind: Kind, number: int) -> None:
    """Request a reconcile of the resource `a` that changes nothing."""
    patch = {"metadata": {"annotations": {_TICK: str(number)}}}
    site.api.merge(kind, site.namespace, "a", patch)


def _seconds(site: Site) -> float:
    """Return the operator's metric of the total duration of reconciles, in seconds."""
    return site.operator.metric("controller_runtime_reconcile_time_seconds_sum")
