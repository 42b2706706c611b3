"""Which reconciles of a watch with `drift: warn` write, on fakes of the ports."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest

from operator_runner.core.errors import Unavailable
from operator_runner.core.model import Cause, Drift, Json, ObjectRef, Prune, Trigger, Watch
from operator_runner.core.object_diff import ObjectDifference
from operator_runner.reconcile.annotations import (
    DRIFT_ANNOTATION,
    DRIFT_POLICY_CHANGED,
    HANDLED_ANNOTATION,
    REQUEST_ANNOTATION,
)
from operator_runner.reconcile.drift import drift_entries
from operator_runner.reconcile.preview import Preview
from tests.fakes.cluster import FakeCluster
from tests.unit.reconcile.test_reconciler import PLAIN, REF, SPEC, START, Case, resource

WARN = replace(PLAIN, drift=Drift.WARN)
RETRY, DEPENDENT = [Cause(Trigger.RETRY)], [Cause(Trigger.DEPENDENT)]
POLICY = [Cause(Trigger.ANNOTATION, DRIFT_POLICY_CHANGED)]
REFERENCE = [Cause(Trigger.REFERENCE)]
DIFFERENCE = ObjectDifference(REF, {"spec": {"size": 4}}, {"spec": {"size": 3}})


class Warned:
    """A reconciler of a watch with `drift: warn`, whose resource has been reconciled."""

    def __init__(self, cluster: FakeCluster, watch: Watch = WARN) -> None:
        self.case = Case(watch, cluster)
        self.previews = 0
        self.failure = ""
        """The error of dry runs."""
        self.case.depend(preview=self._preview)

    async def _preview(self, body: Json, _: Watch) -> Preview:
        self.previews += 1
        found = () if self.failure else (DIFFERENCE,)
        return Preview(ObjectRef.of(body), found, failure=self.failure)

    @property
    def is_counted(self) -> bool:
        """Whether the metric counts the resource."""
        return self.case.states.of(REF).is_drifted

    def set_policy(self, policy: str) -> None:
        """Set the annotation of the resource."""
        annotations = {"annotations": {DRIFT_ANNOTATION: policy}}
        self.case.cluster.edit(REF, lambda body: body["metadata"].update(annotations))

    @property
    def runs(self) -> int:
        """The number of runs that write."""
        return len(self.case.executor.requests)

    async def reconcile(self, causes: list[Cause]) -> None:
        """Reconcile the resource once."""
        await self.case.reconciler.reconcile(REF, causes)


@pytest.fixture
async def warned() -> Warned:
    """Return a resource that was created and reconciled."""
    found = Warned(FakeCluster(resource()))
    await found.reconcile(SPEC)
    assert (await found.case.conditions())["Drifted"]["status"] == "False"
    return found


def _fail() -> None:
    raise Unavailable("try later", 503)


async def test_what_others_change_is_reported_and_not_written(warned: Warned) -> None:
    """Whatever wakes the resource, if nothing has changed what it asks for."""
    for causes in (START, RETRY, DEPENDENT):
        await warned.reconcile(causes)
    assert (warned.runs, warned.previews) == (1, 3)
    assert (await warned.case.conditions())["Drifted"]["status"] == "True"


async def test_a_change_is_applied_by_the_retry_of_its_run(warned: Warned) -> None:
    """The API server is unavailable, before the run and in the middle of it."""
    cluster = warned.case.cluster
    cluster.before_write = _fail
    with pytest.raises(Unavailable):
        await warned.reconcile(REFERENCE)
    cluster.before_write = lambda: None
    warned.case.executor.during = _fail
    with pytest.raises(Unavailable):
        await warned.reconcile(RETRY)
    warned.case.executor.during = lambda: None
    await warned.reconcile(RETRY)
    assert (warned.runs, warned.previews) == (3, 0)
    await warned.reconcile(RETRY)
    assert (warned.runs, warned.previews) == (3, 1)


async def test_a_refused_deletion_is_tried_again_by_a_run_that_writes() -> None:
    """Of an object that the role no longer writes, also by the next process."""
    cluster = FakeCluster(resource())
    for causes in (SPEC, START):
        warned = Warned(cluster, replace(WARN, prune=Prune()))
        warned.case.access.undeletable = ["ConfigMap default/old: forbidden"]
        await warned.reconcile(causes)
        await warned.reconcile(RETRY)
        assert (warned.runs, warned.previews) == (2, 0)
    warned.case.access.undeletable.clear()
    await warned.reconcile(RETRY)
    await warned.reconcile(RETRY)
    assert (warned.runs, warned.previews) == (3, 1)


async def test_a_run_that_the_end_of_the_operator_interrupts_is_repeated(warned: Warned) -> None:
    """The condition does not claim that the generation is reconciled while a run writes."""
    warned.case.executor.during = _fail
    with pytest.raises(Unavailable):
        await warned.reconcile(REFERENCE)
    assert "Drifted" not in await warned.case.conditions()
    restarted = Warned(warned.case.cluster)
    await restarted.reconcile(START)
    assert (restarted.runs, restarted.previews) == (1, 0)


async def test_a_reported_failure_is_corrected_by_a_run(warned: Warned) -> None:
    """Of a reconcile that was to write: a dry run could not end the condition Failure."""
    warned.case.variables.error = RuntimeError("no")
    with pytest.raises(RuntimeError):
        await warned.reconcile(REFERENCE)
    await warned.case.reconciler.report_failure(REF, REFERENCE, "internal error")
    found = await warned.case.conditions()
    assert found["Failure"]["status"] == "True"
    assert "Drifted" not in found
    warned.case.variables.error = None
    await warned.reconcile(RETRY)
    assert (await warned.case.conditions())["Failure"]["status"] == "False"


async def test_a_dry_run_that_cannot_be_reported_does_not_lead_to_writes(warned: Warned) -> None:
    """What the user wants to keep stays."""
    await warned.reconcile(DEPENDENT)
    await warned.case.reconciler.report_failure(REF, DEPENDENT, "forbidden")
    found = await warned.case.conditions()
    assert found["Failure"]["status"] == "False"
    assert found["Drifted"]["status"] == "Unknown"
    await warned.reconcile(RETRY)
    assert (warned.runs, warned.previews) == (1, 2)


async def test_a_request_is_answered_by_a_run_whatever_its_cause(warned: Warned) -> None:
    """An operator that was down has no cause but its start."""
    request = {"annotations": {REQUEST_ANNOTATION: "1"}}
    warned.case.cluster.edit(REF, lambda body: body["metadata"].update(request))
    await warned.reconcile(START)
    assert (warned.runs, warned.previews) == (2, 0)
    annotations = warned.case.cluster.objects[REF]["metadata"]["annotations"]
    assert json.loads(annotations[HANDLED_ANNOTATION])["result"] == "succeeded"


async def test_drift_is_no_longer_reported_once_it_is_ignored(warned: Warned) -> None:
    """The condition still shows the generation that was reconciled, and is written once."""
    await warned.reconcile(DEPENDENT)
    assert warned.is_counted
    warned.set_policy("ignore")
    for _ in range(2):
        await warned.reconcile(POLICY)
    found = (await warned.case.conditions())["Drifted"]
    assert (found["status"], found["observedGeneration"]) == ("False", 1)
    assert found["message"].endswith("drift is ignored")
    assert not warned.is_counted
    assert not drift_entries(warned.case.states)
    version = warned.case.cluster.objects[REF]["metadata"]["resourceVersion"]
    await warned.reconcile(START)
    assert warned.case.cluster.objects[REF]["metadata"]["resourceVersion"] == version
    assert (warned.runs, warned.previews) == (1, 1)


async def test_an_operator_that_ignores_drift_does_not_keep_the_report_of_the_one_before(
    warned: Warned,
) -> None:
    """The policy of a watch changes with a restart."""
    await warned.reconcile(DEPENDENT)
    restarted = Case(replace(WARN, drift=Drift.IGNORE), warned.case.cluster)
    await restarted.reconciler.reconcile(REF, START)
    found = (await restarted.conditions())["Drifted"]
    assert (found["status"], found["message"].endswith("drift is ignored")) == ("False", True)
    assert restarted.executor.requests == []


@pytest.mark.parametrize("policy", ["enforce", "invalid"])
async def test_drift_is_no_longer_reported_once_a_run_writes(warned: Warned, policy: str) -> None:
    """Also if the run fails, or an annotation prevents it: the condition is absent then."""
    await warned.reconcile(DEPENDENT)
    warned.set_policy(policy)
    warned.case.executor.during = _fail
    with suppress(Unavailable):
        await warned.reconcile(POLICY)
    assert "Drifted" not in await warned.case.conditions()
    assert not warned.is_counted
    assert not drift_entries(warned.case.states)


async def test_a_dry_run_that_fails_does_not_change_what_the_metric_counts(
    warned: Warned,
) -> None:
    """That objects cannot be compared does not end the drift; only the condition is Unknown."""
    await warned.reconcile(DEPENDENT)
    warned.failure = "no"
    await warned.reconcile(DEPENDENT)
    assert (await warned.case.conditions())["Drifted"]["status"] == "Unknown"
    assert warned.is_counted
    [entry] = drift_entries(warned.case.states)
    assert (entry.is_known, entry.message) == (False, "The dry run failed: no")
    warned.failure = ""
    await warned.reconcile(DEPENDENT)
    assert warned.is_counted
    events = [event.reason for event in warned.case.cluster.events]
    assert events.count("Drifted") == 1
