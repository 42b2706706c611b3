"""Measure the time until a thousand resources are Successful, and the growth by a second pass."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.api import THREE, is_successful
from bench.burst import create, names
from bench.environment import BenchEnvironment, Setup
from bench.figures import Goal, Row, mebibytes, number, percent, seconds
from bench.footprint import NOISE, UNCOMPRESSED, Footprint

_TIMEOUT_SECONDS = 1800.0
_AIM = 0.12
"""Seconds per resource: a thousand in two minutes."""


def many_resources(environment: BenchEnvironment, count: int) -> Iterator[Row]:
    """Create the resources, restart the operator, and compare the footprints of both passes."""
    # One run's artifacts are kept, so that the second pass replaces those of the first.
    with environment.site(Setup("warm", THREE, UNCOMPRESSED, artifacts=1)) as site:
        begin = time.monotonic()
        create(site, count)
        site.api.until(THREE, site.namespace, names(count), is_successful, _TIMEOUT_SECONDS)
        took = time.monotonic() - begin
        first = Footprint.measure(site)
        site.operator.terminate()
        ended = site.ended()
        site.start()
        site.wait_for_end(ended + count, _TIMEOUT_SECONDS)
        second = Footprint.measure(site)
    work = f"{count} resources"
    goal = Goal(limit=None, target=_AIM * count)
    yield Row(f"{work}: all Successful", seconds(took), "", took, goal, seconds)
    yield from _growth(work, first, second)


def _growth(work: str, first: Footprint, second: Footprint) -> Iterator[Row]:
    text = f"{work}: growth by a second pass, "
    grown = second.memory / first.memory - 1
    memory = f"{mebibytes(second.memory)} after {mebibytes(first.memory)}"
    yield Row(f"{text}memory", memory, "", grown, Goal(limit=NOISE), percent)
    for name in ("files", "descriptors"):
        before, after = getattr(first, name), getattr(second, name)
        texts = f"{text}{name}", f"{after} after {before}"
        yield Row(*texts, "", after - before, Goal(limit=0), number)
