"""Reports of a run keep fields of other writers, and accept any existing status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operator_runner.core.model import Json, RunOutcome
from operator_runner.reconcile.results import Failed
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import PERIOD, PLAIN, REF, SPEC, Case, resource

FOREIGN = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 4,
    "lastHeartbeatTime": "2026-01-02T03:04:05Z",
    "colour": {"red": [1, 2]},
}


async def status(case: Case) -> Json:
    body = await case.cluster.get(REF)
    assert body is not None
    found: Json = body["status"]
    return found


@pytest.mark.parametrize("outcome", [success(changed=1), failure("a", "no")])
async def test_what_others_wrote_survives(outcome: RunOutcome) -> None:
    """Conditions of other types with all their fields, and all other keys of the status."""
    others: Json = {"nodes": ["a"], "phase": "Fine", "deep": {"x": {"y": None}}}
    body = resource() | {"status": others | {"conditions": [FOREIGN]}}
    case = Case(PLAIN, FakeCluster(body), outcome)
    await case.reconciler.reconcile(REF, SPEC)
    found = await status(case)
    assert FOREIGN in found.pop("conditions")
    assert found == others | {"observedGeneration": 1}


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "text",
        {"ok": "3", "changed": None, "failures": 1.5, "completion": 7},
        {"ok": 2**80, "skipped": [], "unknown": True},
        {},
    ],
)
@pytest.mark.parametrize("outcome", [success(changed=1), failure("a", "no")])
async def test_an_invalid_result_of_an_earlier_run_is_replaced(
    odd: Any, outcome: RunOutcome
) -> None:
    """With any value in ansibleResult, the run is reported with its own result."""
    old = [
        {"type": type_, "status": "True", "reason": "x", "message": "y", "ansibleResult": odd}
        for type_ in ("Running", "Failure", "Successful")
    ]
    case = Case(PLAIN, FakeCluster(resource() | {"status": {"conditions": old}}), outcome)
    await case.reconciler.reconcile(REF, SPEC)
    conditions = await case.conditions()
    reported = conditions["Running" if outcome.successful else "Failure"]
    assert reported["ansibleResult"]["failures"] == (0 if outcome.successful else 1)
    assert reported["status"] == "True"


@pytest.mark.parametrize("conditions", [None, "none", {}, []])
async def test_conditions_that_are_not_a_list_are_ignored(conditions: Any) -> None:
    """A status that was written by hand does not keep the operator from reporting."""
    body = resource() | {"status": {"conditions": conditions}}
    case = Case(PLAIN, FakeCluster(body), success(changed=1))
    await case.reconciler.reconcile(REF, SPEC)
    assert (await case.conditions())["Successful"]["status"] == "True"


async def test_without_manage_status_an_error_sets_no_condition() -> None:
    """An Event reports a resource that cannot be run; without manageStatus the status is kept."""
    body = resource(annotations={PERIOD: "soon"}) | {"status": {"mine": 1}}
    case = Case(replace(PLAIN, manage_status=False), FakeCluster(body))
    before = await case.version()
    assert await case.reconciler.reconcile(REF, SPEC) == Failed()
    assert await case.version() == before
    assert await status(case) == {"mine": 1}
    assert [event.warning for event in case.cluster.events] == [True]
