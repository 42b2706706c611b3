"""The bench of replicas that share resources, in a short form.

That each replica has runs of its own at the same time is tested in test_shards.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from bench.scale.chaos import Plan
from bench.scale.session import Session
from operator_runner.devcluster import Cluster


@pytest.fixture
def session(audited_cluster: Cluster, tmp_path: Path) -> Session:
    """Return the parts of the bench, with three replicas and few resources."""
    plan = Plan(minutes=0, seed=18, pause=4)
    return Session(audited_cluster, tmp_path, 3, 60, plan, Console())


@pytest.mark.slow
def test_many_resources_are_taken_over(session: Session) -> None:
    """The others have the resources of a replica that is killed in their queues."""
    found = session.many()
    assert found.one > found.empty // 2 > 0
    assert found.takeover > 0


@pytest.mark.slow
def test_each_fault_leaves_one_writer_and_every_edit_is_reconciled(session: Session) -> None:
    """Scaled 1 to 3 to 1; killed, ended, frozen, cut off and restarted in turn in between."""
    found = session.faults()
    assert (found.unreconciled, found.overlaps) == ((), ())
    faults = {"kill", "terminate", "freeze", "cut the network", "rolling restart"}
    assert faults <= set(found.done)
    assert found.handovers > 0
