"""Many new resources at once, two at a time, warm against cold; and the files that they leave."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.api import THREE, is_successful
from bench.environment import Setup, Site, World, wait_until
from bench.figures import Cost, Goal, Row, compared, number

PEER_FILES, PEER_FILES_AFTER = 4471, 6221
"""What ansible-operator leaves behind after 40 resources, and after their deletion."""
FILES_EACH = 12
"""Files of a resource after its first run."""
_LONGEST = 1200.0
_TWO = ("--max-concurrent-reconciles=2", "--max-runs=2")


def herd(world: World, count: int) -> Iterator[Row]:
    """Create the resources for one operator after the other."""
    with world.site(Setup("warm", THREE, _TWO)) as site:
        before = site.files()
        ours = _bring(site, count)
        files = list(_files(site, count, before))
    with world.site(Setup("cold", THREE, _TWO)) as site:
        other = _bring(site, count)
    each = Cost(ours.wall, ours.cpu / count), Cost(other.wall, other.cpu / count)
    work = f"{count} resources at once, two at a time"
    yield from compared(work, *each, Goal(bar=1 / 12, aim=1 / 25))
    yield from files


def names(count: int) -> set[str]:
    """Return the names of so many resources."""
    return {f"r{place:04}" for place in range(count)}


def create(site: Site, count: int) -> None:
    """Create so many resources, as fast as one client can."""
    for name in sorted(names(count)):
        site.api.create(site.setup.kind, site.namespace, name, {"size": 1})


def _bring(site: Site, count: int) -> Cost:
    """Create the resources; return time and CPU time until all of them are Successful."""
    site.wait_for_quiet()
    cpu, begin = site.cpu_seconds(), time.monotonic()
    create(site, count)
    site.api.until(site.setup.kind, site.namespace, names(count), is_successful, _LONGEST)
    wall = time.monotonic() - begin
    site.wait_for_quiet()
    return Cost(wall, site.cpu_seconds() - cpu)


def _files(site: Site, count: int, before: int) -> Iterator[Row]:
    left = site.files() - before
    bar = Goal(bar=FILES_EACH * count)
    text = f"files of {count} resources"
    yield Row(text, str(left), f"{PEER_FILES} for 40", left, bar, number)
    for name in names(count):
        site.api.delete(site.setup.kind, site.namespace, name)
    kept = site.folders[0] / site.setup.kind.api_version.split("/")[0]
    wait_until(lambda: not kept.exists(), "the work dir is empty after deletion", 60, every=0.1)
    left = site.files() - before
    after = f"{PEER_FILES_AFTER} for 40"
    yield Row(f"{text}, after their deletion", str(left), after, left, Goal(bar=0), number)
