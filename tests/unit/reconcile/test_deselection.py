"""The run of `deselection`: when it comes, what it gets, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from operator_runner.core.model import (
    Cause,
    Deselection,
    Finalizer,
    Json,
    RunContent,
    RunOutcome,
    Schedule,
    Stats,
    Trigger,
    Watch,
)
from operator_runner.reconcile.decide import (
    Action,
    AddMetadata,
    Ignore,
    Run,
    RunDeselection,
    decide,
)
from operator_runner.reconcile.results import Failed, Gone, NoRun, Succeeded
from operator_runner.reconcile.superseding import supersede_reason
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import FOO, MAIN, REF, SPEC, Case, resource

MARK, MARKED = "example.com/chosen", {"example.com/chosen": "true"}
UNDO = RunContent(role=Path("/roles/undo"))
WATCH = Watch(FOO, MAIN, {"a": 1, "b": 1}, deselection=Deselection(MARK, UNDO, {"b": 2}))
BOTH = replace(WATCH, finalizer=Finalizer("example.com/f", None))
DONE = Succeeded(None, Trigger.PERIOD)


@pytest.mark.parametrize(
    ("metadata", "selected", "deselected", "expected"),
    [
        ({}, True, False, AddMetadata("example.com/f", MARK)),
        ({"finalizers": ["example.com/f"]}, True, False, AddMetadata(None, MARK)),
        ({"annotations": MARKED}, True, False, AddMetadata("example.com/f")),
        (
            {"annotations": MARKED, "finalizers": ["example.com/f"]},
            True,
            False,
            Run(cleanup=False),
        ),
        ({"annotations": MARKED}, False, True, RunDeselection()),
        ({"annotations": MARKED}, False, False, Ignore("Resource does not match selector or when")),
        (
            {"annotations": MARKED, "deletionTimestamp": "now"},
            False,
            True,
            Ignore("Resource is terminated"),
        ),
        (
            {"deletionTimestamp": "now", "finalizers": ["example.com/f"]},
            False,
            True,
            Run(cleanup=True),
        ),
    ],
)
def test_the_next_step_depends_on_the_annotation(
    metadata: Json, selected: bool, deselected: bool, expected: Action
) -> None:
    """It is set before the first run; a deletion is the business of the finalizer."""
    body = resource(**metadata)
    assert decide(body, BOTH, selected=selected, deselected=deselected) == expected


def test_one_patch_adds_the_finalizer_and_the_annotation() -> None:
    """The finalizers are a list, which a merge patch replaces."""
    patch = AddMetadata("example.com/f", MARK).patch({"finalizers": ["other/f"]})
    assert patch == {"finalizers": ["other/f", "example.com/f"], "annotations": MARKED}


async def annotations_of(case: Case) -> Json:
    body = await case.cluster.get(REF)
    assert body is not None
    found: Json = body["metadata"].get("annotations") or {}
    return found


async def deselect(case: Case) -> object:
    case.choose(False)
    return await case.reconciler.reconcile(REF, SPEC)


async def test_the_annotation_exists_from_the_first_run_to_the_deselection() -> None:
    """The content and the vars of the deselection run once, as any other run."""
    case = Case(WATCH, FakeCluster(resource(annotations={"kept": "1"})))
    case.executor.during = lambda: seen.append(case.cluster.objects[REF]["metadata"]["annotations"])
    seen: list[Json] = []
    await case.reconciler.reconcile(REF, SPEC)
    assert seen == [{"kept": "1"} | MARKED]

    assert await deselect(case) == DONE
    assert seen[1] == seen[0]
    assert await annotations_of(case) == {"kept": "1"}
    run = case.executor.requests[-1]
    assert run.content == UNDO
    assert (run.extra_vars["a"], run.extra_vars["b"]) == (1, 2)
    assert case.access.of_finalizer == [False, False]
    assert [event.reason for event in case.cluster.events] == ["Successful", "Deselected"]

    assert await case.reconciler.reconcile(REF, SPEC) == NoRun()
    assert len(case.executor.requests) == 2


async def test_a_resource_that_others_write_gets_the_annotation_too() -> None:
    """Controllers write the status of a new Deployment many times: a conflict is not a failure."""
    case = Case(WATCH, FakeCluster(resource()))
    edits = iter([None])

    def edit() -> None:
        for _ in edits:
            case.cluster.edit(REF, lambda body: body.update(status={"replicas": 1}))

    case.cluster.before_write = edit
    assert isinstance(await case.reconciler.reconcile(REF, SPEC), Succeeded)
    assert await annotations_of(case) == MARKED


async def test_no_next_tick_is_shown_of_a_resource_that_is_not_chosen() -> None:
    """`status.nextScheduleTime` is removed with the deselection."""
    body = resource(annotations=MARKED) | {"status": {"nextScheduleTime": "2026-01-01T00:00:00Z"}}
    case = Case(replace(WATCH, schedule=Schedule("'0 4 * * *'")), FakeCluster(body))
    assert await deselect(case) == DONE
    assert case.cluster.objects[REF]["status"].get("nextScheduleTime") is None


async def test_without_content_the_role_of_the_watch_runs_with_the_vars() -> None:
    """As with a finalizer."""
    watch = replace(WATCH, deselection=Deselection(MARK, None, {"state": "absent"}))
    case = Case(watch, FakeCluster(resource(annotations=MARKED)))
    await deselect(case)
    (run,) = case.executor.requests
    assert (run.content, run.extra_vars["state"]) == (MAIN, "absent")


async def test_the_status_shows_that_the_resource_is_no_longer_reconciled() -> None:
    """Conditions of kstatus end; chosen again it is run as a new one."""
    case = Case(replace(WATCH, kstatus=True), FakeCluster(resource()))
    await case.reconciler.reconcile(REF, SPEC)
    assert (await case.conditions())["Ready"]["status"] == "True"
    await deselect(case)
    found = await case.conditions()
    assert found.keys() == {"Running", "Successful", "Failure"}
    running = {key: found["Running"][key] for key in ("status", "reason", "message")}
    message = "Resource does not match selector or when"
    assert running == {"status": "False", "reason": "Deselected", "message": message}
    assert found["Successful"]["status"] == "True"

    case.choose(True)
    seen: list[str] = []
    case.executor.during = lambda: seen.extend(
        each["reason"]
        for each in case.cluster.objects[REF]["status"]["conditions"]
        if each["type"] == "Running"
    )
    await case.reconciler.reconcile(REF, [Cause(Trigger.START)])
    assert seen == ["Running"]
    assert (await case.conditions())["Ready"]["status"] == "True"
    assert await annotations_of(case) == MARKED


async def test_a_deselection_that_fails_is_repeated() -> None:
    """The annotation stays until it succeeds, and the failure is reported."""
    case = Case(WATCH, FakeCluster(resource(annotations=MARKED)), failure("t", "m"), success())
    assert await deselect(case) == Failed()
    assert await annotations_of(case) == MARKED
    assert (await case.conditions())["Failure"]["status"] == "True"
    assert await deselect(case) == DONE
    assert await annotations_of(case) == {}


async def test_a_deselection_may_requeue() -> None:
    """It is done when a run ends without requeue_after, as a finalizer is."""
    asking = RunOutcome(Stats(ok=1), requeue_after=timedelta(seconds=7))
    case = Case(WATCH, FakeCluster(resource(annotations=MARKED)), asking, success())
    assert await deselect(case) == Succeeded(timedelta(seconds=7), Trigger.REQUEUE)
    assert await annotations_of(case) == MARKED
    assert await deselect(case) == DONE


async def test_an_edit_during_the_deselection_does_not_keep_the_annotation() -> None:
    """The patch is repeated on the new version; a resource that is deleted needs none."""
    case = Case(replace(WATCH, manage_status=False), FakeCluster(resource(annotations=MARKED)))
    edits = iter([None])

    def edit() -> None:
        for _ in edits:
            case.cluster.edit(REF, lambda body: body["metadata"].update(labels={"a": "b"}))

    case.cluster.before_write = edit
    assert await deselect(case) == DONE
    assert await annotations_of(case) == {}

    gone = Case(WATCH, FakeCluster(resource(annotations=MARKED)))
    gone.executor.during = lambda: gone.cluster.delete(REF)
    assert await deselect(gone) == Gone()


def test_the_annotation_supersedes_no_run() -> None:
    """Even with watchAnnotationsChanges, a change of it is not an edit by a user."""
    watch = replace(WATCH, watch_annotations_changes=True)
    before, after = resource(), resource(annotations=MARKED)
    assert supersede_reason(before, after, watch) == ""
    assert supersede_reason(before, resource(annotations={"a": "b"}), watch) == "annotations"
