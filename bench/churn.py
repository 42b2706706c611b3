"""Count the runs of a Deployment that rolls many Pods: its status changes all the time."""

from __future__ import annotations

from collections.abc import Iterator

from bench.api import POD, WEB
from bench.environment import BenchEnvironment, Setup, Site, wait_until
from bench.figures import Goal, Row

_FIELD = "status.readyReplicas"
_WAKE_ON = {"group": "apps", "version": "v1", "kind": "Deployment", "fields": [_FIELD]}
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_SECONDS = 180.0


def churn(environment: BenchEnvironment, pods: int) -> Iterator[Row]:
    """Have the Pods of a Deployment become ready one by one, with and without `wakeOn`."""
    work = f"status churn: {pods} Pods become ready"
    with environment.site(Setup(WEB, keys={"wakeOn": [_WAKE_ON]})) as site:
        runs = _roll(environment, site, pods)
        goal = Goal(limit=1.0, target=0.25)
        changes = f"{pods} changes of the field"
        yield Row(f"{work}, wakeOn", _counted(runs), changes, runs / pods, goal, "{:.2f}".format)
    with environment.site(Setup(WEB)) as site:
        runs = _roll(environment, site, pods)
        changes = "1 change of the readiness"
        yield Row(
            f"{work}, without", _counted(runs), changes, runs, Goal(limit=1.0), "{:.0f}".format
        )


def _roll(environment: BenchEnvironment, site: Site, pods: int) -> int:
    """Return the number of runs after the first one; the control plane has no nodes."""
    api, namespace = environment.api, site.namespace
    api.create(WEB, namespace, "a", {"replicas": pods})
    site.wait_for_end(1)
    wait_until(lambda: len(api.list(POD, namespace)) == pods, "the Pods exist", _SECONDS)
    site.wait_for_quiet()
    before = site.ended()
    for pod in api.list(POD, namespace):
        # The controllers of ReplicaSet and Deployment count it.
        api.merge_status(POD, namespace, pod["metadata"]["name"], _READY)
    # The last change leads to a run in any case: the Deployment has become ready.
    wait_until(lambda: site.ended() > before, "a run for the readiness", _SECONDS)
    site.wait_for_quiet()
    return site.ended() - before


def _counted(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
