"""The bench runs with little work; its figures are not checked here."""

from __future__ import annotations

import pytest

from bench.api import (
    APP,
    DEPLOYMENT,
    INGRESS,
    LONG,
    NGINX,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    is_successful,
)
from bench.breakdown import measure_breakdown
from bench.churn import churn
from bench.edits import Subject
from bench.environment import BenchEnvironment, Setup
from bench.memory import measure_memory
from bench.resources import create_and_wait, names


@pytest.mark.parametrize("kind", [NGINX, pytest.param(LONG, marks=pytest.mark.slow)])
def test_an_edit_is_one_reconcile(bench_environment: BenchEnvironment, kind: Kind) -> None:
    """It takes time and CPU time, and so does a run that changes nothing."""
    with bench_environment.site(Setup(kind)) as site:
        subject = Subject(site, kind)
        subject.create()
        costs = [subject.edit(), subject.edit(), subject.edit(), subject.resync()]
        # A controller on a busy machine may observe an edit so late that its status needs a run.
        assert min(subject.runs) == 1
    assert all(min(cost.wall, cost.cpu) > 0 for cost in costs)


@pytest.mark.slow
def test_both_roles_fit_into_one_operator(bench_environment: BenchEnvironment) -> None:
    """ansible-operator is compared with both of them in one process."""
    with bench_environment.site(Setup(NGINX, more=(LONG,))) as site:
        for kind in (NGINX, LONG):
            Subject(site, kind).create()


@pytest.mark.slow
def test_applications_get_their_four_objects(bench_environment: BenchEnvironment) -> None:
    """Each of the applications is Successful, and there are no others."""
    with bench_environment.site(Setup(APP)) as site:
        create_and_wait(site, APP, 3, {"version": "1.0"})
        apps = site.api.list(APP, site.namespace)
        assert {app["metadata"]["name"] for app in apps if is_successful(app)} == names(3)
        for kind in (SERVICE, DEPLOYMENT, INGRESS, SERVICE_ACCOUNT):
            found = {body["metadata"]["name"] for body in site.api.list(kind, site.namespace)}
            assert found - {"default"} == names(3)


@pytest.mark.slow
def test_status_churn_is_coalesced(bench_environment: BenchEnvironment) -> None:
    """Never more runs than changes of the field, and one without wakeOn."""
    rows = list(churn(bench_environment, 10))
    assert [row.value <= (row.goal.limit or 0) for row in rows] == [True, True]


@pytest.mark.slow
def test_the_time_of_a_run_is_broken_down(bench_environment: BenchEnvironment) -> None:
    """Every task and request of the role has its line."""
    lines = {name.strip() for name, _ in measure_breakdown(bench_environment, 1).table}
    assert {"fork", "play set-up", "API requests, within the above"} <= lines
    assert {"Write the ConfigMap", "PATCH configmaps"} <= lines


@pytest.mark.slow
def test_the_memory_of_runs_is_measured(bench_environment: BenchEnvironment) -> None:
    """That of an operator, and of each of its runs while they are inside a task."""
    assert all(row.value > 0 for row in measure_memory(bench_environment))
