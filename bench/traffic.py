"""Count the API requests of a converged reconcile, and the reconciles of one edit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median

from bench.api import THREE
from bench.baseline import AnsibleRunner
from bench.environment import BenchEnvironment, Setup, Site
from bench.figures import Goal, Row, number
from bench.single import reconcile_steadily

REFERENCE_REQUESTS, REFERENCE_RECONCILES = 6, 2
"""Counts of ansible-operator with the same role."""
_RECONCILES, _EDITS, _PLAYS = 10, 5, 3
_QUIET = 3.0
"""Time to wait for unexpected reconciles."""
_CONTROL_PLANE_RESOURCES = {
    "leases",
    "flowschemas",
    "prioritylevelconfigurations",
    "namespaces",
    "serviceaccounts",
}
"""Resources that the control plane itself requests."""


def traffic(environment: BenchEnvironment) -> Iterator[Row]:
    """Count requests at the API server, of the operator and of one `ansible-runner run`."""
    with environment.site(Setup("warm", THREE)) as site:
        environment.api.create(THREE, site.namespace, "a", {"size": 1})
        site.wait_for_end(1)
        baseline = AnsibleRunner(site, environment.cluster.kubeconfig)
        baseline.run()
        reconcile_steadily(site)
        role = _count(site, _PLAYS, baseline.run)
        ours = _count(site, _RECONCILES, lambda: reconcile_steadily(site, 1))
        # The bench's own request is not the operator's.
        ours["PATCH bench.example.com threes"] -= 1
        additional = {what: count - role.get(what, 0) for what, count in ours.items()}
        additional = {what: count for what, count in additional.items() if count > 0}
        total = sum(additional.values())
        description = ", ".join(
            f"{number(count)} {what}" for what, count in sorted(additional.items())
        )
        goal, other = Goal(limit=2, target=1), f"ansible-operator: {REFERENCE_REQUESTS}"
        work = "API requests of a steady reconcile besides the role's"
        yield Row(work, description or "none", other, total, goal, number)
        edits = _reconciles_of_an_edit(site)
        goal, other = Goal(limit=1, target=1), f"ansible-operator: {REFERENCE_RECONCILES}"
        yield Row("reconciles caused by one edit", number(edits), other, edits, goal, number)


def _count(site: Site, times: int, work: Callable[[], object]) -> dict[str, float]:
    """Return the requests of a piece of work, as the median of `times` measurements."""
    counts: list[Counter[str]] = []
    before = site.api.requests()
    for _ in range(times):
        work()
        after = site.api.requests()
        counts.append(after - before)
        before = after
    kinds = {what for count in counts for what in count if not _is_of_control_plane(what)}
    return {what: median(count[what] for count in counts) for what in kinds}


def _is_of_control_plane(what: str) -> bool:
    """Return whether it is a probe, a read of metrics, or a request of the control plane."""
    words = what.split()
    return len(words) == 1 or words[-1] in _CONTROL_PLANE_RESOURCES


def _reconciles_of_an_edit(site: Site) -> float:
    before = site.operator.metric("reconciles_total")
    for size in range(2, 2 + _EDITS):
        ended = site.ended()
        site.api.merge(THREE, site.namespace, "a", {"spec": {"size": size}})
        site.wait_for_end(ended + 1)
        time.sleep(_QUIET / _EDITS)
    time.sleep(_QUIET)
    return (site.operator.metric("reconciles_total") - before) / _EDITS
