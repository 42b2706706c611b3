"""Measure reconciles of a converged resource, and `ansible-runner run` of the same play."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import EMPTY, LONG, THREE, Kind
from bench.baseline import AnsibleRunner
from bench.environment import BenchEnvironment, Setup, Site
from bench.figures import Cost, Goal, Row, compared

_BATCH = 5
"""Reconciles per measurement: /proc has CPU time in hundredths of a second."""
_TICK = "bench.example.com/tick"


def three_tasks(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Measure the role with three Kubernetes tasks."""
    goal = Goal(limit=1 / 12, target=1 / 25)
    return _compare(environment, repetitions, THREE, "three tasks, nothing to change", goal)


def empty_role(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Measure the role without tasks."""
    return _compare(environment, repetitions, EMPTY, "empty role", Goal(limit=1 / 6, target=1 / 15))


def long_role(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Measure the role with some 200 tasks."""
    goal = Goal(limit=None, target=1 / 12)
    return _compare(environment, repetitions, LONG, "200 tasks, nothing to change", goal, batch=1)


def _compare(
    environment: BenchEnvironment,
    repetitions: int,
    kind: Kind,
    work: str,
    goal: Goal,
    *,
    batch: int = _BATCH,
) -> Iterator[Row]:
    with environment.site(Setup("warm", kind)) as site:
        environment.api.create(kind, site.namespace, "a", {"size": 1})
        site.wait_for_end(1)
        baseline = AnsibleRunner(site, environment.cluster.kubeconfig)
        # The first runs fill the caches.
        baseline.run()
        reconcile_steadily(site, batch)
        pairs = [(reconcile_steadily(site, batch), baseline.run()) for _ in range(repetitions)]
    ours, other = zip(*pairs, strict=True)
    yield from compared(work, Cost.median(ours), Cost.median(other), goal)


def reconcile_steadily(site: Site, count: int = _BATCH) -> Cost:
    """Reconcile the resource `count` times, one after the other; return the mean cost."""
    site.wait_for_quiet()
    cpu, wall = site.cpu_seconds(), _seconds(site)
    for _ in range(count):
        ended = site.ended()
        tick(site, ended)
        site.wait_for_end(ended + 1)
    site.wait_for_quiet()
    return Cost((_seconds(site) - wall) / count, (site.cpu_seconds() - cpu) / count)


def tick(site: Site, number: int, name: str = "a") -> None:
    """Request a reconcile that changes nothing."""
    patch = {"metadata": {"annotations": {_TICK: str(number)}}}
    site.api.merge(site.setup.kind, site.namespace, name, patch)


def _seconds(site: Site) -> float:
    """Return the operator's metric of the total duration of reconciles, in seconds."""
    return site.operator.metric("controller_runtime_reconcile_time_seconds_sum")
