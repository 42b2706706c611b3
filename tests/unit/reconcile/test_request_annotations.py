"""Annotations by which users suspend resources and request runs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operator_runner.core.errors import Forbidden
from operator_runner.core.model import Cause, Json, RunOutcome, Stats, Trigger
from operator_runner.reconcile.annotations import (
    DRIFT_ANNOTATION,
    HANDLED_ANNOTATION,
    REQUEST_ANNOTATION,
    RESET_ANNOTATION,
    SUSPEND_ANNOTATION,
    HandledRequest,
    RequestResult,
    Suspension,
    handled_request,
    pending_request,
    requested_change,
    suspension,
)
from operator_runner.reconcile.conditions import is_suspended, read_conditions
from operator_runner.reconcile.decide import Ignore, Run, Suspend, decide
from operator_runner.reconcile.results import Failed, NoRun, Succeeded
from operator_runner.reconcile.superseding import supersede_reason
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import HELD, PLAIN, REF, SPEC, Case, resource

SUSPENDED = {SUSPEND_ANNOTATION: "true"}
REQUESTED = {REQUEST_ANNOTATION: "1"}
DELETING = {"deletionTimestamp": "now", "finalizers": ["example.com/f"]}


def handled(request: str, result: str = "succeeded") -> dict[str, str]:
    return {HANDLED_ANNOTATION: json.dumps({"id": request, "result": result, "runID": "r"})}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", Suspension.TRUE),
        ("cancel", Suspension.CANCEL),
        ("false", Suspension.NONE),
        ("yes", Suspension.NONE),
        ("", Suspension.NONE),
    ],
)
def test_two_values_of_the_annotation_suspend(text: str, expected: Suspension) -> None:
    """All other values, `false` among them, do not."""
    assert suspension({SUSPEND_ANNOTATION: text}) is expected
    assert suspension({}) is Suspension.NONE


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ""),
        (REQUESTED, "1"),
        (REQUESTED | handled("0"), "1"),
        (REQUESTED | handled("1"), ""),
        (REQUESTED | handled("1", "odd"), "1"),
        (REQUESTED | {HANDLED_ANNOTATION: "[" * 100_000}, "1"),
        (REQUESTED | {HANDLED_ANNOTATION: "[]"}, "1"),
        (REQUESTED | {HANDLED_ANNOTATION: '"x"'}, "1"),
        ({REQUEST_ANNOTATION: "x" * 129}, ""),
    ],
)
def test_a_request_is_pending_until_it_was_handled(
    annotations: dict[str, str], expected: str
) -> None:
    """An answer that cannot be read answers nothing; an id of over 128 characters is ignored."""
    assert pending_request(annotations) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, SUSPENDED, "suspended"),
        ({}, {SUSPEND_ANNOTATION: "True"}, "suspended"),
        (SUSPENDED, {SUSPEND_ANNOTATION: "cancel"}, "suspended"),
        (SUSPENDED, {}, "resumed"),
        (SUSPENDED, SUSPENDED, ""),
        ({}, REQUESTED, "run requested"),
        (REQUESTED, REQUESTED | handled("1"), ""),
        (REQUESTED | handled("1"), {REQUEST_ANNOTATION: "2"} | handled("1"), "run requested"),
        ({}, REQUESTED | {RESET_ANNOTATION: "1"}, "retry requested"),
        ({}, REQUESTED | {RESET_ANNOTATION: "0"}, "run requested"),
        ({}, {"note": "1"}, ""),
        ({}, {DRIFT_ANNOTATION: "warn"}, "drift policy changed"),
        ({DRIFT_ANNOTATION: "warn"}, {DRIFT_ANNOTATION: "warn"}, ""),
        ({DRIFT_ANNOTATION: "warn"}, {}, "drift policy changed"),
        ({DRIFT_ANNOTATION: "warn"}, REQUESTED, "run requested"),
    ],
)
def test_a_change_of_the_annotations_is_a_request(
    old: dict[str, str], new: dict[str, str], expected: str
) -> None:
    """The operator's own answer is not one."""
    assert requested_change(old, new) == expected


def test_an_answer_is_read_as_it_was_written() -> None:
    """Id, result, run and message; a long message is cut."""
    answer = HandledRequest("1", RequestResult.FAILED, "no", "4f0c")
    assert handled_request(answer.patch()["annotations"]) == answer
    long = HandledRequest("1", RequestResult.FAILED, "x" * 5000)
    found = handled_request(long.patch()["annotations"])
    assert found is not None
    assert "of 5000 characters]" in found.message


@pytest.mark.parametrize(
    ("metadata", "selected", "deselected", "expected"),
    [
        ({}, True, False, Suspend()),
        ({}, False, True, Suspend()),
        ({}, False, False, Ignore("Resource does not match selector or when")),
        (DELETING, True, False, Suspend("example.com/f")),
        (DELETING, False, False, Suspend("example.com/f")),
        ({"deletionTimestamp": "now"}, True, False, Ignore("Resource is terminated")),
    ],
)
def test_nothing_is_begun_for_a_suspended_resource(
    metadata: Json, selected: bool, deselected: bool, expected: Any
) -> None:
    """No finalizer is added or removed; a resource of somebody else is left alone."""
    body = resource(annotations=SUSPENDED, **metadata)
    assert decide(body, HELD, selected=selected, deselected=deselected) == expected
    finalized = resource(finalizers=["example.com/f"], annotations={SUSPEND_ANNOTATION: "false"})
    assert decide(finalized, HELD, selected=True) == Run(cleanup=False)


async def test_a_suspended_resource_costs_one_write() -> None:
    """The condition is written once; the run after the resume removes it."""
    case = Case(replace(PLAIN, kstatus=True), FakeCluster(resource()), success(changed=1))
    await case.reconciler.reconcile(REF, SPEC)
    case.cluster.edit(REF, lambda body: body["metadata"].update(annotations=dict(SUSPENDED)))
    events = len(case.cluster.events)

    assert await case.reconciler.reconcile(REF, SPEC) == NoRun()
    version = await case.version()
    assert await case.reconciler.reconcile(REF, [Cause(Trigger.PERIOD)]) == NoRun()
    assert await case.version() == version
    found = await case.conditions()
    assert found["Suspended"]["status"] == "True"
    resume = f"operator-runner resume {REF.full_name} --namespace default"
    assert resume in found["Suspended"]["message"]
    assert found["Ready"]["status"] == "True"
    assert len(case.cluster.events) == events
    assert len(case.executor.requests) == 1

    case.cluster.edit(REF, lambda body: body["metadata"].update(annotations={}))
    shown: list[bool] = []
    case.executor.during = lambda: shown.append(
        is_suspended(read_conditions(case.cluster.objects[REF]))
    )
    await case.reconciler.reconcile(REF, SPEC)
    assert shown == [False]
    assert "Suspended" not in await case.conditions()
    assert not case.states.of(REF).is_suspended


async def test_a_condition_of_the_role_named_suspended_is_kept() -> None:
    """Only the operator's own is removed, which its reason identifies."""
    own = {"type": "Suspended", "status": "True", "reason": "Paused", "message": ""}
    body = resource() | {"status": {"conditions": [own]}}
    case = Case(PLAIN, FakeCluster(body), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert (await case.conditions())["Suspended"]["reason"] == "Paused"


@pytest.mark.parametrize(
    ("outcome", "result", "message"),
    [
        (success(), RequestResult.SUCCEEDED, ""),
        (failure("copy", "no"), RequestResult.FAILED, "no (task 'copy')"),
        (
            RunOutcome(Stats(ok=1), requeue_after=timedelta(seconds=7)),
            RequestResult.REQUEUED,
            "the role asked to run again in 7s",
        ),
    ],
)
async def test_a_requested_run_is_answered_once(
    outcome: RunOutcome, result: RequestResult, message: str
) -> None:
    """With its outcome and its run id; later runs write no further answer."""
    case = Case(PLAIN, FakeCluster(resource(annotations=REQUESTED)), outcome, success())
    await case.reconciler.reconcile(REF, SPEC)
    annotations = case.cluster.objects[REF]["metadata"]["annotations"]
    run_id = case.executor.requests[0].run_id
    assert handled_request(annotations) == HandledRequest("1", result, message, run_id)
    await case.reconciler.reconcile(REF, SPEC)
    assert case.cluster.objects[REF]["metadata"]["annotations"] == annotations


async def test_a_request_for_a_resource_that_cannot_run_is_answered() -> None:
    """An invalid annotation and an aborted reconcile are failures as well."""
    period = {"ansible.sdk.operatorframework.io/reconcile-period": "soon"}
    case = Case(PLAIN, FakeCluster(resource(annotations=REQUESTED | period)))
    assert await case.reconciler.reconcile(REF, SPEC) == Failed()
    answer = handled_request(case.cluster.objects[REF]["metadata"]["annotations"])
    assert answer is not None
    assert "Unable to parse reconcile period" in answer.message

    aborted = Case(PLAIN, FakeCluster(resource(annotations=REQUESTED)))
    await aborted.reconciler.report_failure(REF, SPEC, "Kubernetes API error")
    answer = handled_request(aborted.cluster.objects[REF]["metadata"]["annotations"])
    assert answer == HandledRequest("1", RequestResult.FAILED, "Kubernetes API error")


async def test_an_answer_that_is_forbidden_does_not_fail_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator may lack the permission to patch its resources."""

    async def refuse(*_: Any) -> Json:
        raise Forbidden("no", 403)

    case = Case(PLAIN, FakeCluster(resource(annotations=REQUESTED)), success())
    monkeypatch.setattr(case.cluster, "patch_metadata", refuse)
    result = await case.reconciler.reconcile(REF, SPEC)
    assert result == Succeeded(timedelta(hours=10), Trigger.PERIOD)


def test_requests_supersede_no_run() -> None:
    """Even with watchAnnotationsChanges they are not edits of the resource."""
    watch = replace(PLAIN, supersede=True, watch_annotations_changes=True)
    requested = resource(annotations=REQUESTED | handled("1"))
    assert supersede_reason(resource(), requested, watch) == ""
