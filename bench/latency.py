"""Measure the time from an edit of the spec to the changed Deployment, warm and cold."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from statistics import median

from bench.api import DEPLOYMENT, NGINX, WEB, Api, Kind
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.errors import TimedOut
from bench.figures import Goal, Row, ratio_row

_TIMEOUT_SECONDS = 60.0
_SETTLED_SECONDS = 1.0
"""Time without a run after which an edit is settled."""
_SETTLE_TIMEOUT_SECONDS = 300.0


def edit(environment: BenchEnvironment, repetitions: int) -> Iterator[Row]:
    """Edit the replicas of the nginx operator, and of a role whose first task writes them."""
    goal = Goal(limit=1 / 12, target=1 / 25)
    yield _compare(
        environment, repetitions, NGINX, "edit to changed Deployment, nginx operator", goal
    )
    goal = Goal(limit=None, target=1 / 12)
    yield _compare(environment, repetitions, WEB, "edit to changed Deployment, first task", goal)


def _compare(
    environment: BenchEnvironment, repetitions: int, kind: Kind, work: str, goal: Goal
) -> Row:
    """Edit a resource of a warm and one of a cold operator in turns."""
    with (
        environment.site(Setup("warm", kind)) as warm,
        environment.site(Setup("cold", kind)) as cold,
    ):
        sites = (warm, cold)
        for site in sites:
            environment.api.create(kind, site.namespace, "a", {"replicas": 1})
            site.wait_for_end(1)
            _edit(site, 2, sites)
        pairs = [
            [_edit(site, 1 + step % 2, sites) for site in sites] for step in range(repetitions)
        ]
    ours, other = (median(times) for times in zip(*pairs, strict=True))
    return ratio_row(work, ours, other, goal)


def _edit(site: Site, desired: int, sites: Sequence[Site]) -> float:
    """Edit the resource when all `sites` are idle, as `edit_and_wait` does.

    The nginx operator reconciles a resource every ten seconds while its Pods are not ready, and
    without a node they never are.
    """
    for one in sorted(sites, key=lambda one: one is site):
        settle(one)
    return edit_and_wait(site.api, site.setup.kind, site.namespace, desired)


def edit_and_wait(api: Api, kind: Kind, namespace: str, desired: int) -> float:
    """Edit the replicas; return the seconds until a watch receives the changed Deployment.

    Raises TimedOut.
    """
    seen: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
    following = threading.Thread(target=_follow, args=(api, namespace, desired, seen), daemon=True)
    following.start()
    try:
        seen.get(timeout=_TIMEOUT_SECONDS)  # the watch is open
        begin = time.monotonic()
        api.merge(kind, namespace, "a", {"spec": {"replicas": desired}})
        while True:
            at, replicas = seen.get(timeout=max(0, begin + _TIMEOUT_SECONDS - time.monotonic()))
            if replicas == desired:
                return at - begin
    except queue.Empty:
        raise TimedOut(
            f"the Deployment has not got {desired} replicas within {_TIMEOUT_SECONDS:g} s"
        ) from None


def _follow(
    api: Api, namespace: str, desired: int, seen: queue.SimpleQueue[tuple[float, int]]
) -> None:
    for body in api.watch(DEPLOYMENT, namespace, _TIMEOUT_SECONDS):
        replicas = body["spec"]["replicas"]
        seen.put((time.monotonic(), replicas))
        if replicas == desired:
            return


def settle(site: Site) -> None:
    """Wait until the reconciles of an earlier edit have ended.

    Reads the log and, at the end, the metrics: to serve them costs the operator CPU time.
    """
    wait_until(lambda: _is_settled(site), "no reconcile for a second", _SETTLE_TIMEOUT_SECONDS)


def _is_settled(site: Site) -> bool:
    ended = site.ended()
    time.sleep(_SETTLED_SECONDS)
    return site.ended() == ended and not site.is_busy()
