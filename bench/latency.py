"""From the edit of a field of the spec to the changed Deployment, warm against cold."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from statistics import median

from bench.api import DEPLOYMENT, NGINX, WEB, Kind
from bench.environment import Setup, Site, World
from bench.errors import BenchError
from bench.figures import Goal, Row, ratio_row

_LONGEST = 60.0
_SETTLED = 1.0
"""Seconds without a further run after which an edit is done with."""


def edit(world: World, repetitions: int) -> Iterator[Row]:
    """Edit the replicas of the project's own operator, and of a role that begins with them."""
    goal = Goal(bar=1 / 12, aim=1 / 25)
    yield _compare(world, repetitions, NGINX, "edit to changed Deployment, nginx operator", goal)
    goal = Goal(bar=None, aim=1 / 12)
    yield _compare(world, repetitions, WEB, "edit to changed Deployment, first task", goal)


def _compare(world: World, repetitions: int, kind: Kind, work: str, goal: Goal) -> Row:
    """Edit a resource of a warm and one of a cold operator in turns."""
    with world.site(Setup("warm", kind)) as warm, world.site(Setup("cold", kind)) as cold:
        sites = (warm, cold)
        for site in sites:
            world.api.create(kind, site.namespace, "a", {"replicas": 1})
            site.wait_for_end(1)
            _edit(site, 2, sites)
        pairs = [
            [_edit(site, 1 + step % 2, sites) for site in sites] for step in range(repetitions)
        ]
    ours, other = (median(times) for times in zip(*pairs, strict=True))
    return ratio_row(work, ours, other, goal)


def _edit(site: Site, wanted: int, sites: Sequence[Site]) -> float:
    """Edit the resource; return the seconds until a watch has shown the changed Deployment.

    Nothing runs at any of the `sites` then: while its Pods do not serve, and here is no node for
    them, a resource of the nginx operator is run again every ten seconds.
    """
    for one in sorted(sites, key=lambda one: one is site):
        _settle(one)
    seen: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
    threading.Thread(target=_follow, args=(site, wanted, seen), daemon=True).start()
    seen.get(timeout=_LONGEST)  # the watch is open
    begin = time.monotonic()
    site.api.merge(site.setup.kind, site.namespace, "a", {"spec": {"replicas": wanted}})
    while begin + _LONGEST > time.monotonic():
        at, replicas = seen.get(timeout=_LONGEST)
        if replicas == wanted:
            return at - begin
    raise BenchError(f"the Deployment has not got {wanted} replicas within {_LONGEST:g} s")


def _follow(site: Site, wanted: int, seen: queue.SimpleQueue[tuple[float, int]]) -> None:
    for body in site.api.watch(DEPLOYMENT, site.namespace, _LONGEST):
        replicas = body["spec"]["replicas"]
        seen.put((time.monotonic(), replicas))
        if replicas == wanted:
            return


def _settle(site: Site) -> None:
    """Wait until what an earlier edit has led to is over."""
    ended, since = site.ended(), time.monotonic()
    while time.monotonic() - since < _SETTLED:
        time.sleep(_SETTLED / 10)
        if site.is_busy() or site.ended() != ended:
            ended, since = site.ended(), time.monotonic()
