"""Run the scenario of fluxcd/flux-benchmark: many applications of four objects, by a role."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import APP
from bench.cgroup import ControlGroup
from bench.environment import PROGRAM, BenchEnvironment, Setup
from bench.figures import Goal, Row, hundredths, mebibytes, number, seconds
from bench.resources import create_and_wait

_MIB = 1024**2
_CORES, _MEMORY = 2, 1024 * _MIB
"""Limits that the controllers of Flux have there."""
_APPLICATIONS, _SECONDS, _PEAK = 1000, 180, 175 * _MIB
_FLUX = (256, 175 * _MIB)
"""Published for 1,000 Kustomizations with Flux 2.6 on 16 cores."""


def flux(environment: BenchEnvironment, count: int) -> Iterator[Row]:
    """Create the applications for an operator with 2 CPU and 1 GiB.

    Raises BenchError, also if control groups cannot be created.
    """
    group = ControlGroup(_CORES, _MEMORY)
    try:
        program = group.launcher(PROGRAM, environment.scratch)
        # One run's artifacts are kept: a thousand resources have few files then.
        setup = Setup(APP, artifacts=1, program=program)
        with group.sampled() as memory, environment.site(setup) as site:
            cost = create_and_wait(site, APP, count, {"version": "1.0"})
            runs = site.ended() / count
    finally:
        group.remove()
    (peak,) = memory
    work, full = f"{count} applications", count == _APPLICATIONS
    time, used = (seconds(_FLUX[0]), mebibytes(_FLUX[1])) if full else ("", "")
    goal = Goal(None, _SECONDS * count / _APPLICATIONS)
    yield Row(f"{work}: all Successful", seconds(cost.wall), time, cost.wall, goal, seconds)
    text, goal = f"{work}: peak memory", Goal(None, _PEAK)
    value = peak.working_set
    yield Row(f"{text}, working set", mebibytes(value), used, value, goal, mebibytes)
    for what, value in (("anonymous", peak.anonymous), ("with all files", peak.total)):
        yield Row(f"{text}, {what}", mebibytes(value), "", value, Goal(), mebibytes)
    each = cost.cpu / count
    yield Row(f"{work}: CPU time of each", hundredths(each), "", each, Goal(), hundredths)
    yield Row(f"{work}: runs of each", number(runs), "", runs, Goal(), number)
