"""Create many resources at once, with two workers, warm and cold; count the files they leave."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.api import THREE, is_successful
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.figures import Cost, Goal, Row, compared, number

_FILES_EACH, _SHARED_FILES = 12, 1
"""Files of a resource after its first run, and of all resources: the API discovery."""
_TIMEOUT_SECONDS = 1200.0
_TWO = ("--max-concurrent-reconciles=2", "--max-runs=2")


def burst(environment: BenchEnvironment, count: int) -> Iterator[Row]:
    """Create the resources for a warm operator, then for a cold one."""
    with environment.site(Setup("warm", THREE, _TWO)) as site:
        before = site.files()
        ours = create_and_wait(site, count)
        files = list(_files(site, count, before))
    with environment.site(Setup("cold", THREE, _TWO)) as site:
        other = create_and_wait(site, count)
    each = Cost(ours.wall, ours.cpu / count), Cost(other.wall, other.cpu / count)
    work = f"{count} resources at once, two at a time"
    yield from compared(work, *each, Goal(limit=1 / 12, target=1 / 25))
    yield from files


def names(count: int) -> set[str]:
    """Return the names of `count` resources."""
    return {f"r{place:04}" for place in range(count)}


def create(site: Site, count: int) -> None:
    """Create `count` resources sequentially."""
    for name in sorted(names(count)):
        site.api.create(site.setup.kind, site.namespace, name, {"size": 1})


def create_and_wait(site: Site, count: int) -> Cost:
    """Create the resources; return the time until all are Successful, and the CPU time until idle.

    Raises BenchError.
    """
    site.wait_for_quiet()
    cpu, begin = site.cpu_seconds(), time.monotonic()
    create(site, count)
    with site.log_in_timeouts():
        site.api.until(
            site.setup.kind,
            site.namespace,
            names(count),
            is_successful,
            _TIMEOUT_SECONDS,
            check=site.ended,
        )
    wall = time.monotonic() - begin
    site.wait_for_quiet()
    return Cost(wall, site.cpu_seconds() - cpu)


def expected_files(count: int) -> int:
    """Return the number of files of operator-runner after the first runs of the resources."""
    return _FILES_EACH * count + _SHARED_FILES


def delete(site: Site, count: int) -> None:
    """Delete the resources that `create` has created, sequentially."""
    for name in sorted(names(count)):
        site.api.delete(site.setup.kind, site.namespace, name)


def delete_and_wait(site: Site, count: int) -> None:
    """Delete the resources, and wait until the operator has deleted their files."""
    delete(site, count)
    kept = site.folders[0] / site.setup.kind.api_version.split("/")[0]
    wait_until(lambda: not kept.exists(), "the work dir is empty after deletion", 60, every=0.1)


def _files(site: Site, count: int, before: int) -> Iterator[Row]:
    left = site.files() - before
    limit = Goal(limit=expected_files(count))
    text = f"files of {count} resources"
    yield Row(text, str(left), "", left, limit, number)
    delete_and_wait(site, count)
    left = site.files() - before
    yield Row(f"{text}, after their deletion", str(left), "", left, Goal(limit=0), number)
