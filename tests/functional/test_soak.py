"""A minute of what `make soak` does for half an hour."""

from __future__ import annotations

import pytest
from rich.console import Console

from bench.environment import BenchEnvironment
from bench.soak import Plan, soak

pytestmark = pytest.mark.xdist_group("soak")


def test_resources_converge_despite_kills(bench_environment: BenchEnvironment) -> None:
    """Random edits and kills of runs, fork server and operator end with all true and flat."""
    plan = Plan(minutes=0.7, resources=10, seed=4, pause=0.5)
    result = soak(bench_environment, plan, Console())
    assert {"kill run", "kill fork server", "kill operator", "stall API server"} <= set(result.done)
