"""One reconcile of a resource that is as it should be, against `ansible-runner run` of the same."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import EMPTY, THREE, Kind
from bench.baseline import AnsibleRunner
from bench.environment import Setup, Site, World
from bench.figures import Cost, Goal, Row, compared

_BATCH = 5
"""Reconciles that are measured together: /proc counts CPU time in hundredths of a second."""
_TICK = "bench.example.com/tick"


def three_tasks(world: World, repetitions: int) -> Iterator[Row]:
    """Measure the role of three Kubernetes tasks."""
    goal = Goal(bar=1 / 12, aim=1 / 25)
    return _compare(world, repetitions, THREE, "three tasks, nothing to change", goal)


def empty_role(world: World, repetitions: int) -> Iterator[Row]:
    """Measure the role without tasks."""
    return _compare(world, repetitions, EMPTY, "empty role", Goal(bar=1 / 8, aim=1 / 15))


def _compare(world: World, repetitions: int, kind: Kind, work: str, goal: Goal) -> Iterator[Row]:
    with world.site(Setup("warm", kind)) as site:
        world.api.create(kind, site.namespace, "a", {"size": 1})
        site.wait_for_end(1)
        peer = AnsibleRunner(site, world.cluster.kubeconfig)
        # The first time, both fill their caches.
        peer.run()
        reconcile_steadily(site)
        pairs = [(reconcile_steadily(site), peer.run()) for _ in range(repetitions)]
    ours, other = zip(*pairs, strict=True)
    yield from compared(work, Cost.median(ours), Cost.median(other), goal)


def reconcile_steadily(site: Site, count: int = _BATCH) -> Cost:
    """Have the resource reconciled some times, one after the other; return the cost of one."""
    site.wait_for_quiet()
    cpu, wall = site.cpu_seconds(), _seconds(site)
    for _ in range(count):
        ended = site.ended()
        tick(site, ended)
        site.wait_for_end(ended + 1)
    site.wait_for_quiet()
    return Cost((_seconds(site) - wall) / count, (site.cpu_seconds() - cpu) / count)


def tick(site: Site, number: int, name: str = "a") -> None:
    """Ask for a reconcile that has nothing to change."""
    patch = {"metadata": {"annotations": {_TICK: str(number)}}}
    site.api.merge(site.setup.kind, site.namespace, name, patch)


def _seconds(site: Site) -> float:
    """Return the sum of the durations of all reconciles, as the operator counts them."""
    return site.operator.metric("controller_runtime_reconcile_time_seconds_sum")
