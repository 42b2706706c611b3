"""Count the API requests of a converged reconcile, and the reconciles of one edit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

from bench.api import THREE
from bench.baseline import AnsibleRunner
from bench.environment import BenchEnvironment, Setup, Site
from bench.figures import Goal, Row, number
from bench.latency import settle
from bench.single import reconcile_steadily

_RECONCILES, _EDITS, _PLAYS = 10, 5, 3
_RECONCILE_TOTAL = "controller_runtime_reconcile_total"
_QUIET_SECONDS = 3.0
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
        role = requests_of_role(site, environment.cluster.kubeconfig)
        additional = beside(requests_of_reconcile(site, _RECONCILES), role)
        total, goal = sum(additional.values()), Goal(limit=2, target=1)
        work = "API requests of a steady reconcile besides the role's"
        yield Row(work, listed(additional), "", total, goal, number)
        edits, goal = reconciles_of_edit(site), Goal(limit=1, target=1)
        yield Row("reconciles caused by one edit", number(edits), "", edits, goal, number)


def requests_of_role(site: Site, kubeconfig: Path) -> dict[str, float]:
    """Return the requests of `ansible-runner run` for the only resource of a site."""
    baseline = AnsibleRunner(site, kubeconfig)
    # The first run fills the caches.
    baseline.run()
    return _count(site, _PLAYS, baseline.run)


def requests_of_reconcile(site: Site, times: int) -> dict[str, float]:
    """Return the requests of a steady reconcile of the resource `a`, those of the role included.

    They are the median of `times` reconciles.
    """
    reconcile_steadily(site, 1)
    found = _count(site, times, lambda: reconcile_steadily(site, 1))
    # The bench's own request is not the operator's.
    found["PATCH bench.example.com threes"] -= 1
    return found


def beside(requests: Mapping[str, float], role: Mapping[str, float]) -> dict[str, float]:
    """Return the requests without those of the role."""
    rest = {what: count - role.get(what, 0) for what, count in requests.items()}
    return {what: count for what, count in rest.items() if count > 0}


def listed(requests: Mapping[str, float]) -> str:
    """Return the requests in words."""
    return (
        ", ".join(f"{number(count)} {what}" for what, count in sorted(requests.items())) or "none"
    )


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


def reconciles_of_edit(site: Site) -> float:
    """Return the number of reconciles that an edit of the resource `a` causes, as a mean."""
    before = site.operator.metric(_RECONCILE_TOTAL)
    for size in range(2, 2 + _EDITS):
        ended = site.ended()
        site.api.merge(THREE, site.namespace, "a", {"spec": {"size": size}})
        site.wait_for_end(ended + 1)
        settle(site)
    time.sleep(_QUIET_SECONDS)
    return (site.operator.metric(_RECONCILE_TOTAL) - before) / _EDITS
