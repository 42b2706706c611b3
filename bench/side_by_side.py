"""Compare an edit, many resources, memory and the start with ansible-operator itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median

from bench import accounting, traffic
from bench.ansible_operator import AnsibleOperator, running
from bench.api import THREE, WEB, Kind
from bench.burst import create_and_wait, delete, delete_and_wait, expected_files
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.figures import Cost, Goal, Row, hundredths, mebibytes, number, ratio_row
from bench.latency import edit_and_wait, settle
from bench.memory import has_no_memory
from bench.start import seconds_until_ready, start_again

Pair = tuple[Site, AnsibleOperator]

_TWO = ("--max-concurrent-reconciles=2",)
_BESIDE = "beside ansible-operator"
_CPU_TARGET = 1 / 40
_MIB = 1024**2
_COMPRESSED_SECONDS = 120.0


def side_by_side(environment: BenchEnvironment, repetitions: int, resources: int) -> Iterator[Row]:
    """Measure both operators with the same roles, in turns."""
    with _pair(environment, WEB) as sites:
        yield from _edits(sites, repetitions)
        yield _idle_memory(sites)
    with _pair(environment, THREE) as sites:
        yield _start(sites, repetitions)
        yield from _burst(sites, resources)
        yield from _traffic(sites, environment.cluster.kubeconfig, repetitions)


@contextmanager
def _pair(environment: BenchEnvironment, kind: Kind) -> Iterator[Pair]:
    """Run both operators in namespaces of their own, with two runs at a time."""
    with (
        environment.site(Setup("warm", kind, (*_TWO, "--max-runs=2"))) as ours,
        running(environment, Setup("ansible-runner", kind, _TWO)) as other,
    ):
        yield ours, other


def _edits(sites: Pair, repetitions: int) -> Iterator[Row]:
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
    goal = Goal(limit=1 / 9, target=1 / 25)
    yield ratio_row(f"{_BESIDE}: edit to changed Deployment", ours.wall, other.wall, goal)
    goal = Goal(limit=1 / 15, target=_CPU_TARGET)
    yield ratio_row(f"{_BESIDE}: edit, CPU time", ours.cpu, other.cpu, goal)


def _edit(site: Site, desired: int) -> Cost:
    """Edit the replicas; return the time to the changed Deployment, and the CPU time until idle."""
    settle(site)
    cpu = site.cpu_seconds()
    with site.log_in_timeouts():
        wall = edit_and_wait(site.api, WEB, site.namespace, desired)
    settle(site)
    return Cost(wall, site.cpu_seconds() - cpu)


def _idle_memory(sites: Pair) -> Row:
    """Measure operators that have been idle until operator-runner compressed its fork server."""
    wait_until(lambda: has_no_memory(sites[0]), "Ansible compressed", _COMPRESSED_SECONDS)
    ours, other = (accounting.memory(site.family()) for site in sites)
    goal = Goal(100 * _MIB, 90 * _MIB)
    return Row(f"{_BESIDE}: idle, memory", mebibytes(ours), mebibytes(other), ours, goal, mebibytes)


def _start(sites: Pair, repetitions: int) -> Row:
    """Start both operators without resources."""
    pairs = [_start_again(sites) for _ in range(repetitions)]
    ours, other = (median(seconds) for seconds in zip(*pairs, strict=True))
    work = f"{_BESIDE}: start, until the operator is ready"
    return Row(work, hundredths(ours), hundredths(other), ours, Goal(None, 1), hundredths)


def _start_again(sites: Pair) -> tuple[float, float]:
    ours, other = sites
    first, second = start_again(ours).wall, seconds_until_ready(other)
    other.wait_for_quiet()
    return first, second


def _burst(sites: Pair, count: int) -> Iterator[Row]:
    """Create the resources for one operator, then for the other, and count files."""
    before = [site.files() for site in sites]
    costs = [create_and_wait(site, count) for site in sites]
    ours, other = (Cost(cost.wall / count, cost.cpu / count) for cost in costs)
    work = f"{_BESIDE}: each of {count} resources at once"
    yield ratio_row(f"{work}, wall time", ours.wall, other.wall, Goal(None, 1 / 25))
    yield ratio_row(f"{work}, CPU time", ours.cpu, other.cpu, Goal(None, _CPU_TARGET))
    work = f"{_BESIDE}: files of {count} resources"
    yield _files_row(work, sites, before, expected_files(count))
    delete_and_wait(sites[0], count)
    delete(sites[1], count)
    settle(sites[1])
    yield _files_row(f"{work}, after their deletion", sites, before, 0)


def _files_row(work: str, sites: Pair, before: Sequence[int], target: int) -> Row:
    ours, other = (site.files() - files for site, files in zip(sites, before, strict=True))
    return Row(work, str(ours), str(other), ours, Goal(None, target), number)


def _traffic(sites: Pair, kubeconfig: Path, repetitions: int) -> Iterator[Row]:
    """Count requests of a steady reconcile, and reconciles of an edit."""
    for site in sites:
        ended = site.ended()
        site.api.create(THREE, site.namespace, "a", {"size": 1})
        site.wait_for_end(ended + 1)
        settle(site)
    role = traffic.requests_of_role(sites[0], kubeconfig)
    requests = [traffic.requests_of_reconcile(site, repetitions) for site in sites]
    # Its proxy answers reads of the role from a cache, so that all requests are counted too.
    ours, other = (sum(each.values()) for each in requests)
    work, goal = (
        f"{_BESIDE}: API requests of a steady reconcile",
        Goal(None, sum(role.values()) + 1),
    )
    yield Row(work, number(ours), number(other), ours, goal, number)
    rest, others = (traffic.beside(each, role) for each in requests)
    texts, goal = (traffic.listed(rest), traffic.listed(others)), Goal(None, 1)
    yield Row(f"{work} besides the role's", *texts, sum(rest.values()), goal, number)
    ours, other = (traffic.reconciles_of_edit(site) for site in sites)
    work = f"{_BESIDE}: reconciles caused by one edit"
    yield Row(work, number(ours), number(other), ours, goal, number)
