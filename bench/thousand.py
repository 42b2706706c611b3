"""A thousand resources: the time until all are Successful, and what a second pass adds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.api import THREE, is_successful
from bench.burst import create, names
from bench.environment import Setup, World
from bench.figures import Goal, Row, mebibytes, number, percent, seconds
from bench.footprint import NOISE, Taken

_LONGEST = 1800.0
_AIM = 0.12
"""Seconds for each resource: a thousand within two minutes."""


def thousand(world: World, count: int) -> Iterator[Row]:
    """Create them, restart the operator, and compare what it takes after either pass."""
    # One run's artifacts are kept, so that the second pass replaces those of the first.
    with world.site(Setup("warm", THREE, artifacts=1)) as site:
        begin = time.monotonic()
        create(site, count)
        site.api.until(THREE, site.namespace, names(count), is_successful, _LONGEST)
        took = time.monotonic() - begin
        first = Taken.by(site)
        site.operator.terminate()
        ended = site.ended()
        site.start()
        site.wait_for_end(ended + count, _LONGEST)
        second = Taken.by(site)
    work = f"{count} resources"
    goal = Goal(bar=None, aim=_AIM * count)
    yield Row(f"{work}: all Successful", seconds(took), "", took, goal, seconds)
    yield from _growth(work, first, second)


def _growth(work: str, first: Taken, second: Taken) -> Iterator[Row]:
    text = f"{work}: growth by a second pass, "
    grown = second.memory / first.memory - 1
    memory = f"{mebibytes(second.memory)} after {mebibytes(first.memory)}"
    yield Row(f"{text}memory", memory, "", grown, Goal(bar=NOISE), percent)
    for name in ("files", "descriptors"):
        before, after = getattr(first, name), getattr(second, name)
        texts = f"{text}{name}", f"{after} after {before}"
        yield Row(*texts, "", after - before, Goal(bar=0), number)
