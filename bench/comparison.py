"""Compare operator-runner with ansible-operator: real roles, at the pace of life."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean, median

from bench import accounting
from bench.ansible_operator import running
from bench.api import LONG, NGINX
from bench.edits import Subject, settle
from bench.environment import BenchEnvironment, Setup, Site
from bench.figures import Cost, Goal, Row, hundredths, mebibytes, number, ratio_row
from bench.resources import create_and_wait

_ROLES = {NGINX: "nginx operator", LONG: "role of 200 tasks"}
_TIME, _CPU = Goal(None, 1 / 15), Goal(None, 1 / 30)
"""Targets of an edit that comes alone."""
_IDLE = Goal(None, 65 * 1024**2)
_READY = Goal(None, 1)
_RUNS = 2
"""Runs at a time, on both sides."""
_TIMEOUT_SECONDS, _PROBE_SECONDS, _QUIET_CHECK_SECONDS = 1800.0, 60.0, 5.0
_NONE = Goal()

Pair = tuple[Subject, Subject]
"""A resource of operator-runner, and one of ansible-operator."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses between edits in seconds, and amounts."""

    short: float = 60
    long: float = 900
    repetitions: int = 3
    resources: int = 40
    restarted: int = 50
    flags: tuple[str, ...] = ()
    """Flags of operator-runner."""


def comparison(environment: BenchEnvironment, pace: Pace) -> Iterator[Row]:
    """Measure both operators on the same API server; quiet times elapse for both at once.

    operator-runner has a process for each role, so that the first edit after a quiet time is the
    first one for both roles. ansible-operator keeps nothing between runs: one process, which is all
    that its fixed ports allow, has both roles, and its edits follow each other.
    """
    flags = (f"--max-concurrent-reconciles={_RUNS}",)
    ours = {kind: Setup(kind, (*flags, f"--max-runs={_RUNS}", *pace.flags)) for kind in _ROLES}
    with ExitStack() as stack:
        other = stack.enter_context(running(environment, Setup(NGINX, flags, more=(LONG,))))
        sites = {kind: stack.enter_context(environment.site(ours[kind])) for kind in _ROLES}
        yield _ready(sites[NGINX], other, pace.repetitions)
        pairs = [(Subject(sites[kind], kind), Subject(other, kind)) for kind in _ROLES]
        for subject in (subject for pair in pairs for subject in pair):
            subject.create()
            subject.edit()
        for pair in pairs:
            yield from _busy(pair, pace.repetitions)
        yield from _after_pauses(pairs, pace)
        yield from _many((sites[NGINX], other), pace)


def _ready(ours: Site, other: Site, repetitions: int) -> Row:
    """Start both operators without resources until /readyz succeeds."""
    sites = (ours, other)
    pairs = [[_start(site) for site in sites] for _ in range(repetitions)]
    first, second = (median(each) for each in zip(*pairs, strict=True))
    return Row(
        "ready after its start", hundredths(first), hundredths(second), first, _READY, hundredths
    )


def _start(site: Site) -> float:
    site.kill()
    begun = time.monotonic()
    site.start(wait=False)
    site.wait_for_ready(_PROBE_SECONDS)
    ready = time.monotonic() - begun
    settle(site)
    return ready


def _busy(pair: Pair, repetitions: int) -> Iterator[Row]:
    """Edit as soon as the reconciles of the last edit have ended; then change nothing."""
    role = _ROLES[pair[0].kind]
    costs = [_edits(pair) for _ in range(repetitions)]
    yield from _rows(f"{role}: edit in a busy minute", costs, _NONE, _NONE)
    ours, other = (fmean(subject.runs) for subject in pair)
    yield Row(f"{role}: runs of an edit", number(ours), number(other), ours, _NONE, number)
    costs = [tuple(subject.resync() for subject in pair) for _ in range(repetitions)]
    yield from _rows(f"{role}: resync that changes nothing", costs, _NONE, _NONE)


def _after_pauses(pairs: Sequence[Pair], pace: Pace) -> Iterator[Row]:
    """Edit after short pauses and a long one, at whose end both operators are idle."""
    found = []
    for _ in range(pace.repetitions):
        time.sleep(pace.short)
        found.append([_edits(pair) for pair in pairs])
    for pair, short in zip(pairs, zip(*found, strict=True), strict=True):
        work = f"{_ROLES[pair[0].kind]}: edit after {_duration(pace.short)}"
        yield from _rows(work, short, _TIME, _CPU)
    _wait_for_quiet({subject.site for pair in pairs for subject in pair}, pace.long)
    quiet, (nginx, long) = _duration(pace.long), pairs
    second = accounting.memory(nginx[1].site.family())
    costs = [_edits(long)]
    # It would share libraries with the other one, whose memory would look smaller.
    long[0].site.kill()
    first = accounting.memory(nginx[0].site.family())
    work = f"idle memory after {quiet}"
    yield Row(work, mebibytes(first), mebibytes(second), first, _IDLE, mebibytes)
    yield from _rows(f"{_ROLES[NGINX]}: edit after {quiet}", [_edits(nginx)], _TIME, _CPU)
    yield from _rows(f"{_ROLES[LONG]}: edit after {quiet}", costs, _TIME, _CPU)


def _wait_for_quiet(sites: Collection[Site], seconds: float) -> None:
    """Wait until none of the operators had a run for so long.

    Ten minutes after an edit its Deployments fail, because they have no ready Pods. That runs the
    role of an operator that watches their readiness.
    """
    ended, since = None, 0.0
    while (now := [site.ended() for site in sites]) != ended or time.monotonic() - since < seconds:
        if now != ended:
            ended, since = now, time.monotonic()
        time.sleep(_QUIET_CHECK_SECONDS)


def _edits(pair: Pair) -> tuple[Cost, ...]:
    return tuple(subject.edit() for subject in pair)


def _many(sites: Sequence[Site], pace: Pace) -> Iterator[Row]:
    """Create many resources of the nginx operator at once, and restart with them."""
    spec, role = {"replicas": 1}, _ROLES[NGINX]
    costs = [create_and_wait(site, NGINX, pace.resources, spec) for site in sites]
    yield from _rows(f"{role}: {pace.resources} resources at once", [costs], _NONE, _NONE)
    # One resource was edited before.
    last, existing = pace.restarted - 1, pace.resources
    for site in sites:
        create_and_wait(site, NGINX, last, spec, existing=existing)
    costs = [_restart(site, pace.restarted) for site in sites]
    yield from _rows(f"{role}: restart with {pace.restarted} resources", [costs], _NONE, _NONE)


def _restart(site: Site, count: int) -> Cost:
    """Restart an operator; return the time until each resource had a run, and the CPU time."""
    settle(site)
    site.kill()
    ended, begun = site.ended(), time.monotonic()
    site.start(wait=False)
    site.wait_for_end(ended + count, _TIMEOUT_SECONDS)
    wall = time.monotonic() - begun
    return Cost(wall, settle(site))


def _rows(work: str, costs: Sequence[Sequence[Cost]], wall: Goal, cpu: Goal) -> Iterator[Row]:
    """Return rows of the time and the CPU time of pairs of costs."""
    # CPU time is measured in hundredths of a second, so that medians would be too coarse.
    ours, other = (
        Cost(median(cost.wall for cost in each), fmean(cost.cpu for cost in each))
        for each in zip(*costs, strict=True)
    )
    yield ratio_row(f"{work}, time", ours.wall, other.wall, wall)
    yield ratio_row(f"{work}, CPU", ours.cpu, other.cpu, cpu)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    if rest:
        return f"{seconds:g} s of quiet"
    return f"{minutes:g} {'minute' if minutes == 1 else 'minutes'} of quiet"
