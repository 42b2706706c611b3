"""Compare an edit, many resources, memory and the start with ansible-operator itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean, median

from bench.ansible_operator import AnsibleOperator, running
from bench.api import WEB, Kind
from bench.environment import BenchEnvironment, Setup, Site
from bench.errors import BenchError
from bench.figures import Cost, Goal, Row, ratio_row
from bench.latency import edit_and_wait, settle

_TWO = ("--max-concurrent-reconciles=2",)


def side_by_side(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Measure both operators with the same role, in turns."""
    with _pair(environment, WEB) as sites:
        yield from _edits(sites, repetitions)


@contextmanager
def _pair(environment: BenchEnvironment, kind: Kind) -> Iterator[tuple[Site, AnsibleOperator]]:
    """Run both operators in namespaces of their own, with two runs at a time."""
    with (
        environment.site(Setup("warm", kind, (*_TWO, "--max-runs=2"))) as ours,
        running(environment, Setup("ansible-runner", kind, _TWO)) as other,
    ):
        yield ours, other


def _edits(sites: tuple[Site, AnsibleOperator], repetitions: int) -> Iterator[Row]:
    for site in sites:
        site.api.create(WEB, site.namespace, "a", {"replicas": 1})
        site.wait_for_end(1)
        _edit(site, 2)
    pairs = [[_edit(site, 1 + step % 2) for site in sites] for step in range(repetitions)]
    # CPU time is measured in hundredths of a second, so that medians would be too coarse.
    ours, other = (
        Cost(median(cost.wall for cost in costs), fmean(cost.cpu for cost in costs))
        for costs in zip(*pairs, strict=True)
    )
    work = "beside ansible-operator: edit to changed Deployment"
    goal = Goal(limit=1 / 9, target=1 / 25)
    yield ratio_row(work, ours.wall, other.wall, goal)
    work = "beside ansible-operator: CPU time of an edit"
    yield ratio_row(work, ours.cpu, other.cpu, Goal(limit=1 / 15, target=1 / 40))


def _edit(site: Site, desired: int) -> Cost:
    """Edit the replicas; return the time to the changed Deployment, and the CPU time until idle."""
    settle(site)
    cpu = site.cpu_seconds()
    try:
        wall = edit_and_wait(site.api, WEB, site.namespace, desired)
    except BenchError as error:
        raise site.failed(error) from None
    settle(site)
    return Cost(wall, site.cpu_seconds() - cpu)
