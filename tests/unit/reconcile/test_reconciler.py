"""One reconcile from its reading to its report, on fakes of its ports."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from operator_runner.core.durations import parse_duration
from operator_runner.core.errors import RunError
from operator_runner.core.json_bounds import decode
from operator_runner.core.model import (
    CREATED,
    GVK,
    Cause,
    FieldChange,
    Finalizer,
    Json,
    ObjectRef,
    RunContent,
    RunEvent,
    RunOutcome,
    Stats,
    TaskFailure,
    Trigger,
    Watch,
    uid_of,
)
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import AnsibleSettings
from operator_runner.kube.object_readiness import Health, Readiness, readiness_of
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.reconciler import Reconciler
from operator_runner.reconcile.results import Failed, Gone, NoRun, Succeeded
from operator_runner.telemetry.runs.records import RunStore
from tests.fakes.cluster import FakeCluster
from tests.fakes.dependents import FakeDependents, FakeObjects
from tests.fakes.executor import FakeAccess, FakeExecutor, FakeVariableNames, failure, success
from tests.fakes.metrics import RecordedMetrics
from tests.fakes.queue import NoQueue

FOO = GVK("example.com", "v1", "Foo")
REF = ObjectRef(FOO, "default", "a")
MAIN, CLEANUP = RunContent(role=Path("/roles/foo")), RunContent(role=Path("/roles/cleanup"))
PLAIN = Watch(FOO, MAIN)
PULL = Health(Readiness.NOT_READY, None, "ImagePullFailed", "cannot pull image x")
HELD = Watch(FOO, MAIN, finalizer=Finalizer("example.com/f", CLEANUP, {"state": "absent"}))
PLAIN_SETTINGS = AnsibleSettings()
START = [Cause(Trigger.START)]
SPEC = [Cause(Trigger.SPEC)]
PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"
ASKING = RunOutcome(Stats(ok=1), requeue_after=timedelta(seconds=7))
VERBOSITY = "ansible.sdk.operatorframework.io/verbosity"


def resource(**metadata: Any) -> Json:
    known = {"name": "a", "namespace": "default", "resourceVersion": "1", "generation": 1}
    return {
        "apiVersion": FOO.api_version,
        "kind": FOO.kind,
        "metadata": known | metadata,
        "spec": {"size": 3},
    }


class Case:
    """A reconciler with its fakes."""

    def __init__(
        self,
        watch: Watch,
        cluster: FakeCluster,
        *outcomes: RunOutcome,
        ansible: AnsibleSettings = PLAIN_SETTINGS,
        dependents: Callable[[ObjectRef], Sequence[Json]] = lambda _: (),
    ) -> None:
        self.cluster, self.executor = cluster, FakeExecutor(*outcomes)
        self.access = FakeAccess()
        self.variables = FakeVariableNames()
        self.latest_version = ""
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.guarded: Json | None = None
        self.queue, self.states = NoQueue(), ResourceStates()
        self.dependents = FakeDependents(objects=FakeObjects(dependents))
        self.writes = self.dependents.writes
        self.metrics = RecordedMetrics(watch.gvk)
        dependencies = Dependencies(
            cluster,
            self.access,
            self.executor,
            self.dependents,
            self.metrics,
            RunStore(),
            self.queue,
            self.variables,
            OtherWriters(lambda: self.now, timedelta(seconds=30), self.states),
            latest_version=lambda _: self.latest_version,
            states=self.states,
            run_guard=self.guard,
        )
        self._dependencies = dependencies
        self._watch = replace(watch, when="metadata.labels.ignored != 'true'")
        self._ansible = ansible
        self.depend()

    def depend(self, **dependencies: Any) -> None:
        """Make the reconciler, with other dependencies in place of some."""
        changed = replace(self._dependencies, **dependencies)
        self.reconciler = Reconciler(self._watch, changed, self._ansible, timedelta(hours=10))

    @asynccontextmanager
    async def guard(self, body: Json, _: Watch) -> AsyncIterator[None]:
        self.guarded = body
        try:
            yield
        finally:
            self.guarded = None

    def choose(self, is_chosen: bool) -> None:
        """Label the resource so that the watch selects it, or not."""
        labels = {} if is_chosen else {"ignored": "true"}
        self.cluster.edit(REF, lambda body: body["metadata"].update(labels=labels))

    async def conditions(self) -> dict[str, Json]:
        body = await self.cluster.get(REF)
        assert body is not None
        return {condition["type"]: condition for condition in body["status"]["conditions"]}

    async def version(self) -> str:
        body = await self.cluster.get(REF)
        assert body is not None
        return str(body["metadata"]["resourceVersion"])


async def test_a_success_is_reported_and_requeued_after_the_period() -> None:
    """Conditions, one Event, and the period of the flag."""
    case = Case(PLAIN, FakeCluster(resource()), success(changed=2))
    verdict = await case.reconciler.reconcile(REF, SPEC)
    assert verdict == Succeeded(timedelta(hours=10), Trigger.PERIOD)
    assert (await case.conditions())["Successful"]["status"] == "True"
    assert [event.warning for event in case.cluster.events] == [False]
    assert case.executor.requests[0].content == MAIN
    assert case.executor.requests[0].kubeconfig.startswith("kubeconfig of a Foo")
    assert case.access.open == 0


async def test_a_kind_that_is_not_served_is_reported_with_the_nearest_one() -> None:
    """In the condition, as in the records and Events of the run."""
    message = "Deploymnt of app/v1 is not served: is its CRD installed?"
    unserved = TaskFailure("Write", message, unserved=GVK("app", "v1", "deployment"))
    outcome = RunOutcome(Stats(ok=1), (unserved,))
    case = Case(PLAIN, FakeCluster(resource()), outcome)
    await case.reconciler.reconcile(REF, SPEC)
    found = (await case.conditions())["Failure"]["message"]
    assert found.startswith(f"{message} (did you mean Deployment?)")


@pytest.mark.parametrize(("waited", "cause"), [("web", "cannot pull image x"), ("other", "")])
async def test_a_wait_that_timed_out_has_the_cause_of_the_object(waited: str, cause: str) -> None:
    """That of the object that the task waited for, not of another one that is not ready."""
    outcome = failure("Wait", f"timed out waiting for Deployment {waited}")
    case = Case(PLAIN, FakeCluster(resource()), outcome)
    names = ("a", "web")
    found = {ObjectRef(GVK("apps", "v1", "Deployment"), "ns", name): PULL for name in names}
    case.dependents.readiness = lambda _, named="": readiness_of(found, named)
    await case.reconciler.reconcile(REF, SPEC)
    message = (await case.conditions())["Failure"]["message"]
    detail = f" (Deployment {waited} is not ready: {cause})" if cause else ""
    assert message.startswith(f"timed out waiting for Deployment {waited}{detail} (task 'Wait'")


@pytest.mark.parametrize("outcome", [success(), failure("copy", "no")])
async def test_a_run_is_guarded_from_its_begin_to_its_end(outcome: RunOutcome) -> None:
    """Upgrades are blocked for the resource exactly while its play runs."""
    case = Case(PLAIN, FakeCluster(resource()), outcome)
    guarded: list[Json | None] = []
    case.executor.during = lambda: guarded.append(case.guarded)

    await case.reconciler.reconcile(REF, SPEC)

    assert [body and body["spec"] for body in guarded] == [{"size": 3}]
    assert case.guarded is None


async def test_a_steady_resource_costs_no_write() -> None:
    """Resyncs, starts and events that find nothing to change write nothing at all."""
    case = Case(PLAIN, FakeCluster(resource()), success(changed=2), success())
    await case.reconciler.reconcile(REF, SPEC)
    version = await case.version()
    for trigger in (Trigger.PERIOD, Trigger.DEPENDENT, Trigger.START):
        await case.reconciler.reconcile(REF, [Cause(trigger)])
    assert await case.version() == version
    assert len(case.cluster.events) == 1


@pytest.mark.parametrize(("version", "reads"), [("3", 1), ("2", 1), ("10", 2), ("", 2), ("odd", 2)])
async def test_a_steady_resource_is_read_once(version: str, reads: int) -> None:
    """It is read again after the run only if events showed a newer version, or none at all."""
    case = Case(PLAIN, FakeCluster(resource()), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert await case.version() == "3"
    case.latest_version = version
    before = case.cluster.reads
    await case.reconciler.reconcile(REF, [Cause(Trigger.PERIOD)])
    assert case.cluster.reads == before + reads


async def test_a_write_without_an_event_yet_is_not_overwritten() -> None:
    """The status that the role has just written is kept beside the conditions."""
    cluster = FakeCluster(resource())
    case = Case(PLAIN, cluster, success(), success(changed=1))
    await case.reconciler.reconcile(REF, SPEC)
    case.latest_version = await case.version()
    case.executor.during = lambda: cluster.edit(REF, lambda body: body["status"].update(url="x"))
    await case.reconciler.reconcile(REF, [Cause(Trigger.PERIOD)])
    body = await cluster.get(REF)
    assert body is not None
    assert body["status"]["url"] == "x"
    assert (await case.conditions())["Running"]["ansibleResult"]["changed"] == 1


async def test_a_restart_of_the_operator_costs_no_write_either() -> None:
    """A new process finds the resource successful and leaves it alone."""
    cluster = FakeCluster(resource())
    await Case(PLAIN, cluster, success()).reconciler.reconcile(REF, SPEC)
    case = Case(PLAIN, cluster, success())
    version = await case.version()
    await case.reconciler.reconcile(REF, START)
    assert await case.version() == version


async def test_a_failure_is_reported_and_retried() -> None:
    """Condition and Warning Event name task and reason; recovery is reported as well."""
    case = Case(PLAIN, FakeCluster(resource()), failure("web : Apply", "no rights"), success())
    assert await case.reconciler.reconcile(REF, SPEC) == Failed()
    message = (await case.conditions())["Failure"]["message"]
    assert message == "no rights (task 'web : Apply')"
    assert case.cluster.events[0].warning
    assert case.cluster.events[0].note == message
    await case.reconciler.reconcile(REF, [Cause(Trigger.RETRY)])
    assert (await case.conditions())["Failure"]["status"] == "False"
    assert [event.reason for event in case.cluster.events] == ["Failed", "Successful"]


async def test_a_timeout_is_distinguished_from_other_failures() -> None:
    """The result is marked as timed out, for the metric."""
    case = Case(
        PLAIN, FakeCluster(resource()), replace(failure("Hang", "deadline"), timed_out=True)
    )
    assert await case.reconciler.reconcile(REF, SPEC) == Failed(timed_out=True)


async def test_somebody_elses_write_is_never_overwritten() -> None:
    """A concurrent status write leads to another read, and both writes are kept."""
    cluster = FakeCluster(resource())
    case = Case(PLAIN, cluster, success())
    mine = {"type": "Mine", "status": "True"}
    edits = iter([True])

    def interfere() -> None:
        if next(edits, False):
            cluster.edit(REF, lambda body: body.update(status={"conditions": [mine], "url": "x"}))

    cluster.before_write = interfere
    await case.reconciler.reconcile(REF, SPEC)
    found = await case.conditions()
    assert found["Mine"] == mine
    assert found["Successful"]["status"] == "True"
    body = await cluster.get(REF)
    assert body is not None
    assert body["status"]["url"] == "x"


async def test_a_schema_that_requires_reasons_gets_them() -> None:
    """A CRD with metav1.Condition's schema is served, and stays steady."""
    case = Case(PLAIN, FakeCluster(resource(), strict_reasons=True), success())
    await case.reconciler.reconcile(REF, SPEC)
    version = await case.version()
    assert (await case.conditions())["Failure"]["reason"] == "NotFailure"
    await case.reconciler.reconcile(REF, [Cause(Trigger.PERIOD)])
    assert await case.version() == version


async def test_without_manage_status_nothing_is_written() -> None:
    """manageStatus: false leaves the status to the role, for failures too."""
    watch = Watch(FOO, MAIN, manage_status=False)
    case = Case(watch, FakeCluster(resource()), failure("t", "m"), success())
    assert await case.reconciler.reconcile(REF, SPEC) == Failed()
    await case.reconciler.reconcile(REF, SPEC)
    assert await case.version() == "1"


async def test_without_manage_status_unchanged_runs_emit_no_events() -> None:
    """Only changes do, a failure, and the first success after it."""
    watch = Watch(FOO, MAIN, manage_status=False)
    outcomes = success(), success(changed=1), success(), failure("t", "m"), success(), success()
    case = Case(watch, FakeCluster(resource()), *outcomes)
    counts = []
    for _ in outcomes:
        await case.reconciler.reconcile(REF, [Cause(Trigger.PERIOD)])
        counts.append(len(case.cluster.events))
    assert counts == [0, 1, 1, 2, 3, 3]


async def test_new_data_of_a_kind_without_generation_is_announced() -> None:
    """Running is reported during the run; a periodic run of the same data writes nothing."""
    cluster = FakeCluster(resource(generation=None))
    case = Case(PLAIN, cluster, success(), success(), success())
    seen: list[str] = []

    def look() -> None:
        conditions = cluster.objects[REF]["status"]["conditions"]
        seen.append(next(each["reason"] for each in conditions if each["type"] == "Running"))

    case.executor.during = look
    for trigger in (Trigger.SPEC, Trigger.PERIOD, Trigger.SPEC):
        await case.reconciler.reconcile(REF, [Cause(trigger)])
    assert seen == ["Running", "Successful", "Running"]


async def test_a_finalizer_is_added_runs_and_is_removed() -> None:
    """The finalizer is added before the first run, its role cleans up, then it is removed."""
    cluster = FakeCluster(resource(finalizers=["other/f"]))
    case = Case(HELD, cluster, success())
    await case.reconciler.reconcile(REF, SPEC)
    body = await cluster.get(REF)
    assert body is not None
    assert body["metadata"]["finalizers"] == ["other/f", "example.com/f"]
    cluster.edit(REF, lambda body: body["metadata"]["finalizers"].remove("other/f"))
    cluster.delete(REF)
    assert await case.reconciler.reconcile(REF, [Cause(Trigger.DELETION)]) == NoRun()
    assert case.executor.requests[-1].content == CLEANUP
    assert case.executor.requests[-1].extra_vars["state"] == "absent"
    assert await cluster.get(REF) is None
    assert await case.reconciler.reconcile(REF, [Cause(Trigger.DELETION)]) == Gone()
    assert case.executor.forgotten == [REF]


async def test_the_first_run_of_a_new_resource_is_known() -> None:
    """It is the one with the cause of the creation, whatever else has happened."""
    case = Case(PLAIN, FakeCluster(resource()))
    for causes in ([Cause(Trigger.RETRY), CREATED], SPEC, [Cause(Trigger.START)]):
        await case.reconciler.reconcile(REF, causes)
    assert case.dependents.is_new == [True, False, False]


@pytest.mark.parametrize("content", [CLEANUP, MAIN, None])
async def test_every_clean_up_can_leave_a_record(content: RunContent | None) -> None:
    """A run of the finalizer is one, whether its own role runs or that of the watch."""
    cluster = FakeCluster(resource())
    case = Case(replace(HELD, finalizer=Finalizer("example.com/f", content)), cluster)
    await case.reconciler.reconcile(REF, SPEC)
    cluster.delete(REF)
    await case.reconciler.reconcile(REF, [Cause(Trigger.DELETION)])
    assert case.access.of_finalizer == [False, True]


async def test_a_failing_clean_up_keeps_the_resource() -> None:
    """The finalizer stays until the clean-up succeeds."""
    cluster = FakeCluster(resource(finalizers=["example.com/f"], deletionTimestamp="now"))
    case = Case(HELD, cluster, failure("t", "m"))
    assert await case.reconciler.reconcile(REF, [Cause(Trigger.DELETION)]) == Failed()
    assert await cluster.get(REF) is not None


async def test_a_resource_that_is_not_chosen_is_left_alone() -> None:
    """Selector and when are evaluated before anything is written."""
    case = Case(HELD, FakeCluster(resource(labels={"ignored": "true"})))
    assert await case.reconciler.reconcile(REF, SPEC) == NoRun()
    assert await case.version() == "1"


async def test_runs_of_an_earlier_operator_end_if_none_follows() -> None:
    """A run that fails is repeated, and continues them then."""
    case = Case(PLAIN, FakeCluster(resource()), failure("a", "b"))
    await case.reconciler.reconcile(REF, SPEC)
    case.choose(False)
    await case.reconciler.reconcile(REF, SPEC)
    del case.cluster.objects[REF]
    await case.reconciler.reconcile(REF, SPEC)
    assert case.executor.unadopted == [(REF, uid_of(resource())), (REF, ""), (REF, "")]


@pytest.mark.parametrize(("annotation", "expected"), [("30s", timedelta(seconds=30)), ("0s", None)])
async def test_the_annotation_beats_watch_and_flag(
    annotation: str, expected: timedelta | None
) -> None:
    """An annotation of the resource sets the period of its runs, or disables them."""
    watch = Watch(FOO, MAIN, reconcile_period=timedelta(hours=1))
    case = Case(watch, FakeCluster(resource(annotations={PERIOD: annotation})))
    assert await case.reconciler.reconcile(REF, SPEC) == Succeeded(expected, Trigger.PERIOD)


async def test_a_bad_annotation_reaches_the_user() -> None:
    """An invalid duration in an annotation is reported in the Failure condition."""
    case = Case(PLAIN, FakeCluster(resource(annotations={PERIOD: "soon"})))
    assert await case.reconciler.reconcile(REF, SPEC) == Failed()
    message = (await case.conditions())["Failure"]["message"]
    assert message.startswith("Unable to parse reconcile period annotation")
    assert case.executor.requests == []


async def test_requeue_after_beats_the_period() -> None:
    """A play that requests a requeue is run again after the requested time."""
    outcome = RunOutcome(Stats(ok=1), requeue_after=timedelta(seconds=7))
    case = Case(PLAIN, FakeCluster(resource()), outcome)
    verdict = await case.reconciler.reconcile(REF, SPEC)
    assert verdict == Succeeded(timedelta(seconds=7), Trigger.REQUEUE)


async def test_a_resource_that_requeues_each_time_costs_no_write() -> None:
    """Neither do runs after a restart of the operator; one Event reports all of them."""
    cluster = FakeCluster(resource())
    case = Case(PLAIN, cluster, ASKING)
    await case.reconciler.reconcile(REF, SPEC)
    version = await case.version()
    assert (await case.conditions())["Running"]["reason"] == "Running"
    await case.reconciler.reconcile(REF, [Cause(Trigger.REQUEUE)])
    await Case(PLAIN, cluster, ASKING).reconciler.reconcile(REF, START)
    assert await case.version() == version
    (event,) = cluster.events
    assert event.note == ("Reconciled: 1 tasks ok, 0 changed; the role asked to run again in 7s")


async def test_an_edit_ends_the_waiting() -> None:
    """The start of a run for a new spec is reported, and its success is an Event."""
    case = Case(PLAIN, FakeCluster(resource()), ASKING, success())
    await case.reconciler.reconcile(REF, SPEC)
    case.cluster.edit(REF, lambda body: body["metadata"].update(generation=2))
    during: list[str] = []
    of_resource = case.cluster.objects
    case.executor.during = lambda: during.extend(
        each["message"] for each in of_resource[REF]["status"]["conditions"]
    )
    await case.reconciler.reconcile(REF, SPEC)
    assert during == ["Running reconciliation"]
    assert (await case.conditions())["Successful"]["status"] == "True"
    assert [event.reason for event in case.cluster.events] == ["Successful"] * 2


async def test_a_clean_up_that_requeues_keeps_the_resource() -> None:
    """The finalizer stays until a clean-up ends without asking; the waiting costs no write."""
    held = {"finalizers": ["example.com/f"], "deletionTimestamp": "now", "generation": 2}
    case = Case(HELD, FakeCluster(resource(**held)), ASKING, ASKING, success())
    again = Succeeded(timedelta(seconds=7), Trigger.REQUEUE)
    assert await case.reconciler.reconcile(REF, SPEC) == again
    version = await case.version()
    assert await case.reconciler.reconcile(REF, SPEC) == again
    assert await case.version() == version
    assert await case.reconciler.reconcile(REF, SPEC) == NoRun()
    assert await case.cluster.get(REF) is None


@pytest.mark.parametrize(
    ("annotation", "variable", "raw"),
    [("4", False, True), ("0", False, False), ("x", False, False), (None, True, True)],
)
async def test_a_requested_verbosity_shows_the_output_of_the_run(
    annotation: str | None, variable: bool, raw: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The annotation of the resource, or ANSIBLE_VERBOSITY, decides for each run."""
    annotations = {} if annotation is None else {VERBOSITY: annotation}
    settings = AnsibleSettings(raw_output=variable)
    case = Case(PLAIN, FakeCluster(resource(annotations=annotations)), ansible=settings)
    case.executor.events = [RunEvent("playbook_on_play_start", {}, "PLAY [localhost]")]
    await case.reconciler.reconcile(REF, SPEC)
    assert ("PLAY [localhost]" in capsys.readouterr().out) is raw


@pytest.mark.parametrize(
    ("marked", "text", "warned"), [(False, "{{ x }}", 1), (True, "{{ x }}", 0), (False, "x", 0)]
)
async def test_evaluated_text_is_warned_about(marked: bool, text: str, warned: int) -> None:
    """Writers of a resource could run templates; the log has the fields and a hint."""
    body = resource()
    body["spec"]["title"] = text
    case = Case(replace(PLAIN, mark_unsafe=marked), FakeCluster(body))
    with structlog.testing.capture_logs() as lines:
        await case.reconciler.reconcile(REF, SPEC)
    warnings = [line for line in lines if "evaluated as a template" in line["event"]]
    assert [warning["fields"] for warning in warnings] == [["spec.title"]] * warned


@pytest.mark.parametrize("during", [False, True])
async def test_another_operator_is_reported_once(during: bool) -> None:
    """By a warning and an Event; it may write between two reconciles, or as a run begins."""
    cluster = FakeCluster(resource())
    case = Case(PLAIN, cluster, *[success()] * 4)

    def edit(body: Json) -> None:
        body["metadata"]["generation"] += 1

    def write(body: Json) -> None:
        body["status"]["conditions"] = [{"type": "Running", "message": str(case.now)}]

    def interfere() -> None:
        cluster.before_write = lambda: None
        cluster.edit(REF, write)

    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            await case.reconciler.reconcile(REF, SPEC)
            case.now += timedelta(minutes=1)
            cluster.edit(REF, edit)
            if during:
                cluster.before_write = interfere
            else:
                cluster.edit(REF, write)
    (warning,) = [line for line in lines if "Another operator" in line["event"]]
    assert "--leader-elect" in warning["hint"]
    assert [one.reason for one in cluster.events].count("AnotherOperator") == 1


def reserved_notices(cluster: FakeCluster) -> list[str]:
    return [found.note for found in cluster.events if found.reason == "ReservedFieldNames"]


async def test_a_field_that_ansible_acts_on_is_dropped_and_reported_once() -> None:
    """By a warning in the log and an Event for each generation; runs continue without the field."""
    body = resource()
    body["spec"] |= {"sopsBinary": "/bin/sh", "hosts": "all"}
    cluster = FakeCluster(body)
    case = Case(PLAIN, cluster)

    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            assert isinstance(await case.reconciler.reconcile(REF, SPEC), Succeeded)

    for request in case.executor.requests:
        assert "sops_binary" not in request.extra_vars
        assert "hosts" not in request.extra_vars
        assert request.extra_vars["size"] == 3
    (warning,) = [line for line in lines if "not passed to the role" in line["event"]]
    assert warning["fields"] == ["spec.sopsBinary", "spec.hosts"]
    assert "allowVars" in warning["hint"]
    (note,) = reserved_notices(cluster)
    assert "spec.sopsBinary" in note

    cluster.edit(REF, lambda edited: edited["metadata"].update(generation=2))
    await case.reconciler.reconcile(REF, SPEC)
    assert len(reserved_notices(cluster)) == 2


async def test_a_keyword_that_the_role_declares_reaches_it() -> None:
    """`port` is a word of playbooks, but a variable that Ansible has no use for."""
    body = resource()
    body["spec"] |= {"port": 80, "vars": {}}
    cluster = FakeCluster(body)
    case = Case(PLAIN, cluster)
    case.variables.declares = frozenset({"port", "vars"})

    await case.reconciler.reconcile(REF, SPEC)

    assert case.executor.requests[0].extra_vars["port"] == 80
    assert "vars" not in case.executor.requests[0].extra_vars
    (note,) = reserved_notices(cluster)
    assert "spec.port" not in note


async def test_nothing_runs_while_the_names_are_unknown() -> None:
    """The resource shows why; it is tried again."""
    cluster = FakeCluster(resource())
    case = Case(PLAIN, cluster)
    case.variables.error = RunError("Ansible is missing")

    verdict = await case.reconciler.reconcile(REF, SPEC)

    assert isinstance(verdict, Failed)
    assert case.executor.requests == []
    failure = (await case.conditions())["Failure"]
    assert failure["message"] == "Unable to run reconciliation: Ansible is missing"


async def test_a_resource_out_of_bounds_is_refused_and_waits_for_an_edit() -> None:
    """Condition and Event have place and hint; nothing is run, finalized or retried."""
    body = decode(json.dumps(resource() | {"spec": nested(200)}).encode())
    cluster = FakeCluster(body)
    case = Case(HELD, cluster)
    cluster.objects[REF] = body
    assert await case.reconciler.reconcile(REF, SPEC) == NoRun(failed=True)
    failure_ = (await case.conditions())["Failure"]
    assert (failure_["status"], failure_["reason"]) == ("True", "Failed")
    assert "nested more than 100 levels deep at spec.a.a" in failure_["message"]
    assert [event.note for event in cluster.events] == [failure_["message"]]
    assert case.executor.requests == []
    cluster.objects[REF] = resource(resourceVersion="9", generation=2)
    assert isinstance(await case.reconciler.reconcile(REF, SPEC), Succeeded)


def nested(levels: int) -> Json:
    body: Json = {}
    for _ in range(levels):
        body = {"a": body}
    return body


@pytest.mark.parametrize("outcome", [success(changed=1), failure("t", "m")])
@pytest.mark.parametrize("manage_status", [True, False])
async def test_a_run_reports_nothing_about_a_new_resource_of_the_same_name(
    outcome: RunOutcome, manage_status: bool
) -> None:
    """Neither status nor Event; the new one is announced and run, and its finalizer stays."""
    cluster = FakeCluster(resource(uid="old"))
    case = Case(replace(PLAIN, manage_status=manage_status), cluster, outcome, success())
    new = resource(uid="new", resourceVersion="7")
    case.executor.during = lambda: cluster.objects.update({REF: copy.deepcopy(new)})
    assert await case.reconciler.reconcile(REF, SPEC) == Gone()
    assert await cluster.get(REF) == new
    assert case.executor.forgotten == [REF]
    case.executor.during = lambda: None
    assert isinstance(await case.reconciler.reconcile(REF, SPEC), Succeeded)
    assert len(case.executor.requests) == 2


async def test_what_is_remembered_of_a_name_is_dropped_with_its_uid() -> None:
    """A resource made again between two runs starts from nothing, and is announced."""
    cluster = FakeCluster(resource(uid="old"))
    case = Case(PLAIN, cluster, success())
    await case.reconciler.reconcile(REF, SPEC)
    cluster.objects[REF] = resource(uid="new", resourceVersion="7")
    seen: list[str] = []
    case.executor.during = lambda: seen.extend(
        condition["type"] for condition in cluster.objects[REF]["status"]["conditions"]
    )
    assert isinstance(await case.reconciler.reconcile(REF, SPEC), Succeeded)
    assert (case.queue.forgotten, case.executor.forgotten, seen) == ([REF], [REF], ["Running"])
    assert isinstance(await case.reconciler.reconcile(REF, SPEC), Succeeded)
    assert case.queue.forgotten == [REF]


async def test_a_clean_up_releases_the_resource_that_it_cleaned_up() -> None:
    """The finalizer of another one of the same name stays until its own clean-up."""
    held = resource(uid="old", finalizers=["example.com/f"], deletionTimestamp="now")
    new = resource(uid="new", resourceVersion="7", finalizers=["example.com/f"])
    cluster = FakeCluster(held)
    case = Case(HELD, cluster)
    case.executor.during = lambda: cluster.objects.update({REF: copy.deepcopy(new)})
    await case.reconciler.reconcile(REF, [Cause(Trigger.DELETION)])
    assert await cluster.get(REF) == new


@pytest.mark.parametrize(
    ("asked", "given"), [("1ns", "1s"), ("999ms", "1s"), ("1s", "1s"), ("-5m", None)]
)
async def test_a_period_is_at_least_a_second(asked: str, given: str | None) -> None:
    """By annotation, by watches.yaml and by flag alike; zero and less still turn it off."""
    expected = None if given is None else parse_duration(given)
    body = resource(annotations={PERIOD: asked})
    verdict = await Case(PLAIN, FakeCluster(body)).reconciler.reconcile(REF, SPEC)
    assert verdict == Succeeded(expected, Trigger.PERIOD)
    watch = replace(PLAIN, reconcile_period=parse_duration(asked))
    verdict = await Case(watch, FakeCluster(resource())).reconciler.reconcile(REF, SPEC)
    assert verdict == Succeeded(expected, Trigger.PERIOD)


async def test_an_error_of_our_own_reaches_the_user() -> None:
    """On the resource too, whose owner cannot read the operator's log."""
    case = Case(PLAIN, FakeCluster(resource()))
    await case.reconciler.report_failure(REF, SPEC, "Internal error")
    assert (await case.conditions())["Failure"]["message"] == "Internal error"
    assert [event.note for event in case.cluster.events] == ["Internal error"]


SECRET = ObjectRef(GVK("", "v1", "Secret"), "default", "db")


def changing(case: Case) -> None:
    """Have each run change a field, each time from the value that the last run left."""
    numbers = count()

    def write() -> None:
        number = next(numbers)
        before, after = bytes([number]), bytes([number + 1])
        case.writes.begin(REF)
        case.writes.changed(REF, [FieldChange(SECRET, "data.password", before, after, 1.5)])

    case.executor.during = write
    times = {"start": "1970-01-01T00:00:01", "end": "1970-01-01T00:00:02"}
    case.executor.events = [RunEvent("runner_on_ok", {"task": "Password", **times})]


def reported(case: Case) -> list[str]:
    return [event.note for event in case.cluster.events if event.reason == "NotIdempotent"]


async def test_a_role_that_is_not_idempotent_is_reported_once() -> None:
    """Event and log name task, object and field; the state is passed on after each run."""
    case = Case(PLAIN, FakeCluster(resource()))
    changing(case)
    found = []
    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as logs:
        for causes in (SPEC, START, START, START):
            await case.reconciler.reconcile(REF, causes)
            found.append(case.states.of(REF).is_idempotent)
    (note,) = reported(case)
    assert "task 'Password' changes data.password of Secret default/db" in note
    (line,) = [line for line in logs if line["event"] == "Role is not idempotent"]
    assert line["run_id"]
    assert line["log_level"] == "warning"
    fields = {name: line[name] for name in ("task", "object", "fields")}
    assert fields == {
        "task": "Password",
        "object": "Secret default/db",
        "fields": "data.password",
    }
    assert found == [True, True, False, False]
    case.executor.during = lambda: None
    await case.reconciler.reconcile(REF, START)
    assert case.states.of(REF).is_idempotent


async def test_failed_runs_and_clean_ups_do_not_count_for_idempotence() -> None:
    """They end early, or are the last run."""
    case = Case(PLAIN, FakeCluster(resource()), failure("t", "m"))
    changing(case)
    for _ in range(4):
        await case.reconciler.reconcile(REF, START)
    body = resource(finalizers=["example.com/f"], deletionTimestamp="2026-01-01T00:00:00Z")
    leaving = Case(HELD, FakeCluster(body))
    changing(leaving)
    await leaving.reconciler.reconcile(REF, START)
    assert case.states.of(REF).is_idempotent
    assert leaving.states.of(REF).is_idempotent
    assert not reported(case)


async def test_edits_of_the_spec_are_reasons_for_changes() -> None:
    """A run that an edit led to is never counted."""
    case = Case(PLAIN, FakeCluster(resource()))
    changing(case)
    for _ in range(5):
        await case.reconciler.reconcile(REF, SPEC)
    assert not reported(case)


async def test_retries_of_one_failure_cost_no_write() -> None:
    """Neither their start nor their end is written; another failure, or a success, is."""
    case = Case(
        PLAIN, FakeCluster(resource()), *[failure("a", "no")] * 3, failure("a", "else"), success()
    )
    retry = [Cause(Trigger.RETRY, "attempt 1")]
    await case.reconciler.reconcile(REF, SPEC)
    version = int(await case.version())
    for writes in (0, 0, 1, 2):
        await case.reconciler.reconcile(REF, retry)
        assert int(await case.version()) == version + writes
    found = await case.conditions()
    assert {name: found[name]["status"] for name in found} == {
        "Running": "True",
        "Failure": "False",
        "Successful": "True",
    }
    failed = [event for event in case.cluster.events if event.reason == "Failed"]
    assert [event.note for event in failed] == ["no (task 'a')"] * 3 + ["else (task 'a')"]


async def test_an_edit_after_a_failure_is_reported_from_its_start() -> None:
    """Also if it fails in the same way: the failure is then that of the edit."""
    case = Case(PLAIN, FakeCluster(resource()), failure("a", "no"))
    await case.reconciler.reconcile(REF, SPEC)
    case.cluster.edit(REF, lambda body: body["metadata"].update(generation=2))
    version = int(await case.version())
    await case.reconciler.reconcile(REF, SPEC)
    assert int(await case.version()) == version + 2
    assert (await case.conditions())["Failure"]["observedGeneration"] == 2
