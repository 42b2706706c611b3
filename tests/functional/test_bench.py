"""The bench runs with little work; its figures are not checked here."""

from __future__ import annotations

from bench import churn, single, traffic
from bench.breakdown import measure_breakdown
from bench.environment import BenchEnvironment


def test_a_reconcile_is_measured_beside_ansible_runner(bench_environment: BenchEnvironment) -> None:
    """Both sides took time, and ours took less."""
    rows = list(single.three_tasks(bench_environment, 1))
    assert [row.work.rpartition(": ")[2] for row in rows] == ["wall time", "CPU time"]
    assert all(0 < row.value < 1 for row in rows)


def test_an_edit_is_one_reconcile_and_one_request(bench_environment: BenchEnvironment) -> None:
    """The counts do not depend on the machine, so they are held to their bars."""
    rows = list(traffic.traffic(bench_environment))
    assert [row.value <= (row.goal.limit or 0) for row in rows] == [True, True]


def test_status_churn_is_coalesced(bench_environment: BenchEnvironment) -> None:
    """Never more runs than changes of the field, and one without wakeOn."""
    rows = list(churn.churn(bench_environment, 10))
    assert [row.value <= (row.goal.limit or 0) for row in rows] == [True, True]


def test_the_time_of_a_run_is_broken_down(bench_environment: BenchEnvironment) -> None:
    """Every task and request of the role has its line."""
    names = {name.strip() for name, _ in measure_breakdown(bench_environment, 1).table}
    assert {"fork", "play set-up", "API requests, within the above"} <= names
    assert {"Write the ConfigMap", "PATCH configmaps"} <= names
