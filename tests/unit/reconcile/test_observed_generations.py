"""observedGeneration is the generation of the resource that a run was given, where it is kept."""

from __future__ import annotations

import copy
from dataclasses import replace

import structlog

from operator_runner.core.errors import Invalid
from operator_runner.core.model import Json
from operator_runner.reconcile.annotations import SUSPEND_ANNOTATION
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import PLAIN, REF, SPEC, START, Case, resource


async def generations(case: Case) -> dict[str, int | None]:
    """Return the generations of the conditions by type, and that of the status."""
    body = await case.cluster.get(REF)
    assert body is not None
    found = {each["type"]: each.get("observedGeneration") for each in body["status"]["conditions"]}
    return found | {"": body["status"].get("observedGeneration")}


def edit(case: Case, generation: int) -> None:
    """Edit the spec as a user does."""
    case.cluster.edit(REF, lambda body: body["metadata"].update(generation=generation))


class OtherSchema(FakeCluster):
    """A CRD that drops observedGeneration, or has it as text."""

    is_text = False
    is_dropping = True

    async def patch_status(self, body: Json, status: Json) -> Json:
        """Apply the schema first."""
        status = copy.deepcopy(status)
        for each in (status, *status["conditions"]):
            if self.is_text and "observedGeneration" in each:
                raise Invalid("status.observedGeneration: must be of type string", 422)
            if self.is_dropping:
                each.pop("observedGeneration", None)
        return await super().patch_status(body, status)


async def test_an_edit_during_a_run_is_not_observed() -> None:
    """Success and failure are those of the generation that the run was given."""
    for outcome in (success(changed=1), failure("a", "no")):
        case = Case(PLAIN, FakeCluster(resource(generation=4)), outcome)
        case.executor.during = lambda case=case: edit(case, 5)  # type: ignore[misc]
        await case.reconciler.reconcile(REF, SPEC)
        assert set((await generations(case)).values()) == {4}


async def test_a_run_is_given_the_generation_that_its_start_reports() -> None:
    """An edit between the first read and the report of the start is in the run and in Running."""
    case = Case(PLAIN, FakeCluster(resource(generation=4)), success(changed=1))
    during: list[dict[str, int | None]] = []

    def edit_once() -> None:
        case.cluster.before_write = lambda: None
        edit(case, 5)

    case.cluster.before_write = edit_once

    def look() -> None:
        body = case.cluster.objects[REF]["status"]
        during.extend({each["type"]: each["observedGeneration"]} for each in body["conditions"])

    case.executor.during = look
    await case.reconciler.reconcile(REF, SPEC)
    assert during == [{"Running": 5}]
    assert set((await generations(case)).values()) == {5}


async def test_only_a_new_generation_is_one_write_that_moves_nothing_else() -> None:
    """Order, times and texts stay as they are; the next run of the same generation writes nothing.

    The resource was edited while no operator was running, and its objects match already.
    """
    cluster = FakeCluster(resource(generation=4))
    await Case(PLAIN, cluster, success(changed=1)).reconciler.reconcile(REF, SPEC)
    restarted = Case(PLAIN, cluster, success())
    edit(restarted, 5)
    before, version = copy.deepcopy(cluster.objects[REF]["status"]), int(await restarted.version())
    for _ in range(2):
        await restarted.reconciler.reconcile(REF, START)
        assert int(await restarted.version()) == version + 1
    for each in (before, *before["conditions"]):
        each["observedGeneration"] = 5
    assert cluster.objects[REF]["status"] == before


async def test_a_crd_that_drops_generations_costs_no_writes_and_one_line() -> None:
    """The log names where to add what; a corrected CRD is noticed at the next write."""
    cluster = OtherSchema(resource(generation=4))
    case = Case(PLAIN, cluster, success(changed=1), success())
    with structlog.testing.capture_logs() as lines:
        await case.reconciler.reconcile(REF, SPEC)
        version = await case.version()
        await case.reconciler.reconcile(REF, START)
        assert await case.version() == version
        edit(case, 5)
        await case.reconciler.reconcile(REF, SPEC)
    assert set((await generations(case)).values()) == {None}
    warnings = [each for each in lines if "observedGeneration" in each["event"]]
    assert [each["fields"] for each in warnings] == [
        ["status.conditions.items"],  # Running, at the start
        ["status"],
    ]
    assert "observedGeneration: {type: integer, format: int64}" in warnings[0]["hint"]
    cluster.is_dropping = False
    edit(case, 6)
    await case.reconciler.reconcile(REF, SPEC)
    assert set((await generations(case)).values()) == {6}


async def test_a_crd_with_another_type_gets_all_but_the_generation() -> None:
    """A status is written in any case."""
    cluster = OtherSchema(resource(generation=4))
    cluster.is_text = True
    case = Case(PLAIN, cluster, success(changed=1), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert (await case.conditions())["Successful"]["status"] == "True"
    version = await case.version()
    await case.reconciler.reconcile(REF, START)
    assert await case.version() == version


async def test_an_aborted_reconcile_is_reported_for_what_it_has_read() -> None:
    """A failure of the operator itself is not one of an edit after it."""
    case = Case(PLAIN, FakeCluster(resource(generation=4)), success(changed=1))
    await case.reconciler.reconcile(REF, SPEC)
    edit(case, 5)
    await case.reconciler.report_failure(REF, SPEC, "Kubernetes API error")
    found = await generations(case)
    assert found["Failure"] == found["Successful"] == 4


async def test_kinds_without_generations_have_none() -> None:
    """The field is left out, for it would be 0."""
    body = resource()
    del body["metadata"]["generation"]
    case = Case(replace(PLAIN, kstatus=True), FakeCluster(body), success(changed=1))
    await case.reconciler.reconcile(REF, SPEC)
    assert set((await generations(case)).values()) == {None}


async def test_a_suspended_edit_is_observed_as_suspended_only() -> None:
    """Suspended has the generation of the edit, and Successful that of the last run."""
    case = Case(PLAIN, FakeCluster(resource(generation=4)), success(changed=1))
    await case.reconciler.reconcile(REF, SPEC)

    def suspend(body: Json) -> None:
        body["metadata"].update(generation=5, annotations={SUSPEND_ANNOTATION: "true"})

    case.cluster.edit(REF, suspend)
    await case.reconciler.reconcile(REF, SPEC)
    found = await generations(case)
    assert (found["Suspended"], found["Successful"], found[""]) == (5, 4, 4)
