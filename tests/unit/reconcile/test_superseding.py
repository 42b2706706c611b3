"""Changes that end a current run, and the next state of the resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.controller.dispatcher import Dispatcher
from operator_runner.controller.loop_throttle import LoopThrottle
from operator_runner.controller.sources.own_writes import OwnWrites
from operator_runner.controller.workqueue import WorkQueue
from operator_runner.core.fencing import Fences
from operator_runner.core.model import (
    GVK,
    Cause,
    Finalizer,
    Json,
    ObjectRef,
    RunContent,
    RunEvent,
    RunOutcome,
    RunRequest,
    Trigger,
    Watch,
)
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import AnsibleSettings, BackoffSettings, Concurrency
from operator_runner.reconcile.annotations import SUSPEND_ANNOTATION, SUSPENDED
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.reconciler import Reconciler
from operator_runner.reconcile.superseding import supersede_reason
from operator_runner.telemetry.metrics import Metrics
from operator_runner.telemetry.runs.records import RunStore
from tests.fakes.cluster import FakeCluster
from tests.fakes.dependents import FakeDependents
from tests.fakes.executor import FakeAccess, FakeVariableNames, success
from tests.fakes.queue import NoQueue

FOO = GVK("example.com", "v1", "Foo")
REF = ObjectRef(FOO, "default", "a")
MAIN, CLEANUP = RunContent(role=Path("/roles/foo")), RunContent(role=Path("/roles/cleanup"))
PLAIN = Watch(FOO, MAIN, supersede=True)
ANNOTATED = Watch(FOO, MAIN, supersede=True, watch_annotations_changes=True)
HELD = Watch(FOO, MAIN, finalizer=Finalizer("example.com/f", CLEANUP), supersede=True)
EDIT, DELETION = Cause(Trigger.SPEC, "edit"), Cause(Trigger.DELETION)


def resource(spec: Any = 0, **metadata: Any) -> Json:
    known = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    return {
        "apiVersion": FOO.api_version,
        "kind": FOO.kind,
        "metadata": known | {"generation": 1} | metadata,
        "spec": {"size": spec},
    }


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (None, "deleted"),
        (resource(uid="other"), "deleted"),
        (resource(deletionTimestamp="now"), "being deleted"),
        (resource(2, generation=2), "generation 1 to 2"),
        (resource(resourceVersion="2", labels={"a": "b"}), ""),
        (resource(resourceVersion="2", finalizers=["a/b"]), ""),
        (resource(resourceVersion="2", annotations={"a": "b"}), ""),
        (resource(resourceVersion="2") | {"status": {"phase": "new"}}, ""),
    ],
)
def test_deletion_and_spec_count_and_nothing_else_does(now: Json | None, why: str) -> None:
    """Writes into status, labels, annotations and finalizers end no run."""
    assert supersede_reason(resource(), now, PLAIN) == why


def test_annotations_count_where_the_watch_runs_for_them() -> None:
    """With watchAnnotationsChanges they are a wish as the spec is."""
    annotated = resource(annotations={"a": "b"})
    assert supersede_reason(resource(), annotated, ANNOTATED) == "annotations"
    assert supersede_reason(resource(), resource(), ANNOTATED) == ""


def test_kinds_without_generation_are_compared_by_content() -> None:
    """A ConfigMap with new data is a new wish; one with a new label is not."""
    old = resource(1, generation=0)
    assert supersede_reason(old, resource(1, generation=0, resourceVersion="2"), PLAIN) == ""
    edited = resource(2, generation=0, resourceVersion="2")
    assert supersede_reason(old, edited, PLAIN) == "resourceVersion 1 to 2"


def test_a_repeated_event_of_a_deletion_ends_no_run() -> None:
    """A finalizer of another controller does not end the run."""
    deleting = resource(deletionTimestamp="now")
    assert supersede_reason(deleting, deleting, PLAIN) == ""


class HeldExecutor:
    """Runs last until the test lets them end; two runs of one resource at once are an error."""

    def __init__(self) -> None:
        self.started: list[RunRequest] = []
        self.ended: list[RunRequest] = []
        self.go = asyncio.Event()
        self._running: set[ObjectRef] = set()

    async def run(self, request: RunRequest, on_event: Callable[[RunEvent], None]) -> RunOutcome:
        """See the port."""
        on_event(RunEvent("playbook_on_start", {}))
        assert request.ref not in self._running
        self._running.add(request.ref)
        self.started.append(request)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.ended.append(request)
            raise
        finally:
            self._running.discard(request.ref)
        return success()

    async def end_unadopted(self, ref: ObjectRef, current: str) -> None:
        """Do nothing."""

    async def forget(self, ref: ObjectRef) -> None:
        """See the port."""

    @property
    def sizes(self) -> list[int]:
        """What each run that was started found in the spec."""
        return [request.extra_vars["size"] for request in self.started]


class Case:
    """Queue, dispatcher and reconciler of one watch, on fakes of cluster and executor."""

    def __init__(self, watch: Watch, body: Json, fences: Fences | None = None) -> None:
        self.cluster, self.executor = FakeCluster(body), HeldExecutor()
        self.metrics = Metrics("1")
        self.metrics.watching(FOO, 2)
        dependencies = Dependencies(
            self.cluster,
            FakeAccess(),
            self.executor,
            FakeDependents(),
            self.metrics,
            RunStore(),
            NoQueue(),
            FakeVariableNames(),
            OtherWriters(lambda: datetime.now(UTC), timedelta(seconds=30), ResourceStates()),
            latest_version=lambda _: "",
            run_guard=lambda *_: nullcontext(),
            fences=fences or Fences(),
        )
        reconciler = Reconciler(watch, dependencies, AnsibleSettings(), timedelta(0))
        self.queue = WorkQueue(Concurrency(2, 2), BackoffSettings())
        self.gone: list[ObjectRef] = []
        states = dependencies.states
        writes = OwnWrites(states)
        throttle = LoopThrottle(writes.is_recent_echo, writes.has_written, states)
        self.dispatcher = Dispatcher(
            self.queue, {FOO: reconciler}, self.metrics, throttle, self.gone.append, states=states
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work inside the block; the first run is in progress."""
        working = asyncio.create_task(self.dispatcher.run())
        self.queue.add(REF, Cause(Trigger.SPEC, "created"))
        await self.until(lambda: len(self.executor.started) == 1)
        try:
            yield
        finally:
            self.queue.close()
            self.executor.go.set()
            await working
            await self.dispatcher.drain(60)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 (there is no event for it)
                await asyncio.sleep(0)

    def edit(self, size: int, cause: Cause = EDIT) -> None:
        def change(body: Json) -> None:
            body["spec"] = {"size": size}
            body["metadata"]["generation"] += 1

        self.cluster.edit(REF, change)
        self.queue.add(REF, cause)

    def annotate(self, annotations: dict[str, str]) -> None:
        """Set the annotations as a user does."""
        self.cluster.edit(REF, lambda body: body["metadata"].update(annotations=annotations))
        self.queue.add(REF, Cause(Trigger.ANNOTATION, SUSPENDED))

    def condition_types(self) -> set[str]:
        status = self.cluster.objects[REF].get("status") or {}
        return {condition["type"] for condition in status.get("conditions", ())}

    def count(self, outcome: str) -> int:
        text = self.metrics.render()[0].decode()
        runs = [line for line in text.splitlines() if line.startswith("operator_runner_runs_total")]
        return sum(int(float(line.split()[-1])) for line in runs if f'"{outcome}"' in line)

    async def conditions(self) -> dict[str, Json]:
        body = await self.cluster.get(REF)
        assert body is not None
        return {condition["type"]: condition for condition in body["status"]["conditions"]}

    async def settle(self) -> None:
        """Let all runs end, and wait until nothing is to be done."""
        self.executor.go.set()
        await self.until(lambda: self.count("succeeded") == 1)


async def test_an_edit_ends_the_run_and_the_newest_spec_runs_in_its_place() -> None:
    """No failure, no Event and no backoff comes of it; the status ends as that of any run."""
    case = Case(PLAIN, resource())
    async with case.running():
        case.edit(1)
        await case.until(lambda: len(case.executor.started) == 2)
        assert case.executor.ended == case.executor.started[:1]
        assert (await case.conditions())["Running"]["status"] == "True"
        await case.settle()
    assert case.executor.sizes == [0, 1]
    assert case.count("superseded") == 1
    assert case.count("failed") == 0
    assert [event.reason for event in case.cluster.events] == ["Successful"]
    found = await case.conditions()
    assert found["Successful"]["status"] == "True"
    assert found["Running"]["reason"] == "Successful"


@pytest.mark.parametrize(
    "cause",
    [Cause(Trigger.DEPENDENT), Cause(Trigger.PERIOD), Cause(Trigger.RETRY), Cause(Trigger.PROJECT)],
)
async def test_causes_that_no_user_requested_wait_for_the_end_of_the_run(cause: Cause) -> None:
    """Dependents, resyncs, retries and edits of the project make one later run."""
    case = Case(PLAIN, resource())
    async with case.running():
        case.queue.add(REF, cause)
        case.queue.add(ObjectRef(FOO, "default", "gone"), EDIT)
        await case.until(lambda: bool(case.gone))
        await case.settle()
        await case.until(lambda: len(case.executor.started) == 2)
    assert case.executor.ended == []


async def test_without_the_key_an_edit_waits() -> None:
    """The key is off by default."""
    case = Case(Watch(FOO, MAIN), resource())
    async with case.running():
        case.edit(1)
        case.queue.add(ObjectRef(FOO, "default", "gone"), EDIT)
        await case.until(lambda: bool(case.gone))
        assert len(case.executor.started) == 1
        case.executor.go.set()
        await case.until(lambda: case.count("succeeded") == 2)
    assert case.executor.ended == []
    assert case.executor.sizes == [0, 1]


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "now"}])
async def test_a_suspension_ends_the_run_only_on_request(metadata: Json) -> None:
    """`true` lets the run end by itself and `cancel` ends it, without the key and in clean-ups."""
    case = Case(replace(HELD, supersede=False), resource(finalizers=["example.com/f"], **metadata))
    async with case.running():
        case.annotate({SUSPEND_ANNOTATION: "true"})
        case.queue.add(ObjectRef(FOO, "default", "gone"), EDIT)
        await case.until(lambda: bool(case.gone))
        assert case.executor.ended == []
        case.annotate({SUSPEND_ANNOTATION: "cancel"})
        await case.until(lambda: case.count("superseded") == 1)
        assert case.executor.ended == case.executor.started
        await case.until(lambda: "Suspended" in case.condition_types())
    assert len(case.executor.started) == 1
    assert (await case.conditions())["Running"]["status"] == "False"


async def test_an_edit_every_moment_does_not_keep_a_resource_from_ever_being_done() -> None:
    """After edits have ended five consecutive runs, the sixth is completed."""
    case = Case(PLAIN, resource())
    async with case.running():
        for size in range(1, 6):
            case.edit(size)
            await case.until(lambda: case.executor.sizes[-1] == size)  # noqa: B023 (called here)
        case.edit(6)
        case.queue.add(ObjectRef(FOO, "default", "gone"), EDIT)
        await case.until(lambda: bool(case.gone))
        assert len(case.executor.started) == 6
        case.executor.go.set()
        await case.until(lambda: case.count("succeeded") == 2)
    assert case.executor.sizes == [0, 1, 2, 3, 4, 5, 6]
    assert case.count("superseded") == 5


async def test_a_deletion_is_cleaned_up_at_once_and_the_clean_up_completes() -> None:
    """The deletion ends the ordinary run; an edit during the clean-up ends nothing."""
    case = Case(HELD, resource(finalizers=["example.com/f"]))
    async with case.running():
        case.cluster.delete(REF)
        case.queue.add(REF, DELETION)
        await case.until(lambda: len(case.executor.started) == 2)
        assert case.executor.started[1].content == CLEANUP
        case.edit(1)
        case.queue.add(ObjectRef(FOO, "default", "gone"), EDIT)
        await case.until(lambda: bool(case.gone))
        assert len(case.executor.started) == 2
        case.executor.go.set()
        await case.until(lambda: REF in case.gone)
    assert len(case.executor.ended) == 1
    assert await case.cluster.get(REF) is None


async def test_a_deleted_resource_is_not_reconciled() -> None:
    """Without a finalizer the run just ends."""
    case = Case(PLAIN, resource())
    async with case.running():
        case.cluster.delete(REF)
        case.queue.add(REF, DELETION)
        await case.until(lambda: REF in case.gone)
        assert case.executor.ended == case.executor.started
    assert case.count("superseded") == 1


async def test_the_status_is_not_left_running_where_no_run_follows() -> None:
    """A deletion that another finalizer delays ends the run, which the status shows."""
    case = Case(PLAIN, resource(finalizers=["other.com/f"]))
    async with case.running():
        case.cluster.delete(REF)
        case.queue.add(REF, DELETION)
        await case.until(lambda: case.count("superseded") == 1)
    running = (await case.conditions())["Running"]
    assert (running["status"], running["reason"]) == ("False", "Superseded")


async def test_an_edit_by_which_the_resource_is_chosen_no_more_ends_no_run() -> None:
    """No run would follow, so the current one is completed and reported."""
    case = Case(replace(PLAIN, when="spec.size != `1`"), resource())
    async with case.running():
        case.edit(1)
        case.queue.add(ObjectRef(FOO, "default", "gone"), EDIT)
        await case.until(lambda: bool(case.gone))
        await case.settle()
    assert case.executor.ended == []


async def test_the_end_of_the_operator_ends_the_run_as_well() -> None:
    """A run that can be superseded still ends with the operator."""
    case = Case(PLAIN, resource())
    working = asyncio.create_task(case.dispatcher.run())
    case.queue.add(REF, EDIT)
    await case.until(lambda: len(case.executor.started) == 1)
    case.queue.close()
    await working
    await case.dispatcher.drain(0)
    assert case.executor.ended == case.executor.started


async def test_what_precedes_the_cancellation_of_runs_is_done_while_they_are_in_progress() -> None:
    """Jobs are left to the next operator before their runs end."""
    case = Case(PLAIN, resource())
    ended_before: list[int] = []

    async def before_cancel() -> None:
        ended_before.append(len(case.executor.ended))

    working = asyncio.create_task(case.dispatcher.run())
    case.queue.add(REF, EDIT)
    await case.until(lambda: len(case.executor.started) == 1)
    case.queue.close()
    await working
    await case.dispatcher.drain(0, before_cancel)
    assert ended_before == [0]
    assert case.executor.ended == case.executor.started
