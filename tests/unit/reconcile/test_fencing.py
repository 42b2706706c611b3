"""Runs whose process may have lost the Lease: they end, and nothing is reported."""

from __future__ import annotations

import pytest

from operator_runner.core.errors import Fenced
from operator_runner.core.fencing import Fences
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure
from tests.fakes.term import Clock, held_term
from tests.unit.reconcile import test_reconciler as single
from tests.unit.reconcile.test_superseding import PLAIN, REF, Case, resource


async def test_a_refused_write_ends_the_run_which_is_repeated_when_this_process_leads() -> None:
    """No failure is counted or reported: the role is not at fault."""
    term = held_term(clock := Clock())
    fences = Fences(lambda _: term)
    case = Case(PLAIN, resource(), fences)
    async with case.running():
        clock.now += 11
        with pytest.raises(Fenced):
            fences.of(REF).check()
        await case.until(lambda: len(case.executor.ended) == 1)
        conditions = await case.conditions()
        assert "Failure" not in conditions
        assert conditions["Running"]["status"] == "True"
        term.extend(("uid", 2), clock.now)
        await case.settle()
    assert case.cluster.events[0].reason == "Successful"
    assert len(case.executor.started) > 1
    assert case.count("failed") == 0


async def test_the_verdict_of_a_run_that_outlived_the_term_is_dropped() -> None:
    """A task that failed because of a refused write would count as a failure of the role."""
    term = held_term(clock := Clock())
    cluster = FakeCluster(single.resource(uid="u"))
    case = single.Case(single.PLAIN, cluster, failure("Write", "refused"))
    case.depend(fences=Fences(lambda _: term))

    def outlive() -> None:
        clock.now += 11

    case.executor.during = outlive
    with pytest.raises(Fenced, match="Lease team/web"):
        await case.reconciler.reconcile(single.REF, single.SPEC)

    assert cluster.events == []
    assert [*await case.conditions()] == ["Running"]
    assert case.access.open == 0
