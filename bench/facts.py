"""Compare reconciles of a role with and without fact gathering."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import THREE
from bench.environment import BenchEnvironment, Setup
from bench.figures import Cost, Goal, Row, times
from bench.single import reconcile_steadily


def facts(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Measure the role with three Kubernetes tasks, two operators in turns."""
    gathering = Setup("warm", THREE, gathers_facts=True)
    with environment.site(gathering) as ours, environment.site(Setup("warm", THREE)) as other:
        sites = (ours, other)
        for site in sites:
            environment.api.create(THREE, site.namespace, "a", {"size": 1})
            site.wait_for_end(1)
            # The first reconciles fill caches and gather facts.
            reconcile_steadily(site)
        pairs = [tuple(map(reconcile_steadily, sites)) for _ in range(repetitions)]
    with_facts, without = (Cost.median(costs) for costs in zip(*pairs, strict=True))
    goal = Goal(limit=1.2, target=1.1)
    work = "facts: three tasks with them, and without"
    yield Row(
        f"{work}: wall time",
        f"{with_facts.wall:.3f} s",
        f"{without.wall:.3f} s",
        with_facts.wall / without.wall,
        goal,
        times,
    )
    yield Row(
        f"{work}: CPU time",
        f"{with_facts.cpu:.3f} s",
        f"{without.cpu:.3f} s",
        with_facts.cpu / without.cpu,
        goal,
        times,
    )
