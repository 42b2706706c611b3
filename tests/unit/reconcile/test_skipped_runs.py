"""Which runs are skipped, and which are not in any case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.model import (
    Cause,
    JobTemplate,
    Json,
    ObjectRef,
    RunEvent,
    Trigger,
    Watch,
)
from operator_runner.reconcile.results import Failed, Succeeded, Unchanged
from operator_runner.reconcile.skipped_runs import ExecutedTasks, has_known_inputs, may_skip
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import PLAIN, REF, SPEC, Case, resource

SKIPPING = replace(PLAIN, skip_unchanged=True)
START = [Cause(Trigger.START)]
ROLE = Path("/opt/ansible/roles/web")


class FakeInputs:
    """Inputs that are unchanged once a run has converged, until the test changes them."""

    def __init__(self) -> None:
        self.unchanged = False
        self.begun: list[Json] = []

    async def are_unchanged(self, body: Json, watch: Watch, triggers: frozenset[Trigger]) -> bool:
        """See the port."""
        assert body["metadata"]["name"] == "a"
        assert watch.skip_unchanged
        assert triggers
        return self.unchanged

    async def begin(self, body: Json, watch: Watch) -> None:
        """See the port."""
        assert watch.skip_unchanged
        self.begun.append(body)

    def on_event(self, uid: str, event: RunEvent) -> None:
        """See the port."""
        assert uid == ""
        assert event.kind

    def ended(self, ref: ObjectRef, uid: str, *, converged: bool) -> None:
        """See the port."""
        assert (ref, uid) == (REF, "")
        self.unchanged = converged

    def forget(self, ref: ObjectRef, uid: str) -> None:
        """See the port."""
        assert (ref, uid) == (REF, "")
        self.unchanged = False


def case_of(*outcomes: Any, watch: Watch = SKIPPING) -> tuple[Case, FakeInputs]:
    case, inputs = Case(watch, FakeCluster(resource()), *outcomes), FakeInputs()
    case.depend(inputs=inputs)
    return case, inputs


@pytest.mark.parametrize("trigger", [Trigger.START, Trigger.PERIOD, Trigger.DEPENDENT])
async def test_a_run_with_unchanged_inputs_is_skipped(trigger: Trigger) -> None:
    """The resource stays as it is, the period goes on, and `why` has the reason."""
    case, _ = case_of(success())
    await case.reconciler.reconcile(REF, SPEC)
    version = await case.version()
    result = await case.reconciler.reconcile(REF, [Cause(trigger)])
    assert result == Unchanged(timedelta(hours=10), Trigger.PERIOD)
    assert len(case.executor.requests) == 1
    assert case.executor.skipped == [(REF, "inputs unchanged")]
    assert await case.version() == version


@pytest.mark.parametrize(
    "trigger",
    sorted(set(Trigger) - {Trigger.START, Trigger.PERIOD, Trigger.DEPENDENT}, key=str),
)
async def test_all_other_causes_start_a_run(trigger: Trigger) -> None:
    """Alone, and beside one that is skipped alone."""
    case, _ = case_of(success())
    await case.reconciler.reconcile(REF, SPEC)
    for causes in ([Cause(trigger)], [Cause(Trigger.START), Cause(trigger)]):
        assert isinstance(await case.reconciler.reconcile(REF, causes), Succeeded)
    assert len(case.executor.requests) == 3


async def test_changed_inputs_start_a_run() -> None:
    """The role runs as well if the inputs are unknown."""
    case, inputs = case_of(success())
    await case.reconciler.reconcile(REF, SPEC)
    inputs.unchanged = False
    assert isinstance(await case.reconciler.reconcile(REF, START), Succeeded)
    assert len(inputs.begun) == 2


async def test_a_failed_run_is_repeated() -> None:
    """Until one succeeds, no run is skipped, even if the inputs are the same."""
    case, inputs = case_of(success(), failure("copy", "no"), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert isinstance(await case.reconciler.reconcile(REF, SPEC), Failed)
    inputs.unchanged = True
    assert isinstance(await case.reconciler.reconcile(REF, START), Succeeded)


async def test_a_run_that_requests_a_requeue_has_not_converged() -> None:
    """The role waits for something."""
    case, inputs = case_of(replace(success(), requeue_after=timedelta(seconds=5)))
    await case.reconciler.reconcile(REF, SPEC)
    assert not inputs.unchanged


async def test_a_watch_without_the_key_runs() -> None:
    """Skipping is off by default."""
    case = Case(PLAIN, FakeCluster(resource()), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert isinstance(await case.reconciler.reconcile(REF, START), Succeeded)


def test_a_resource_without_a_recorded_success_runs() -> None:
    """After a restart the condition shows the success; without conditions nothing does."""
    body = resource()
    assert not may_skip(body, SKIPPING, START, succeeded=True)
    body["status"] = {"conditions": [{"type": "Successful", "status": "True"}]}
    assert may_skip(body, SKIPPING, START, succeeded=False)
    without_status = replace(SKIPPING, manage_status=False)
    assert not may_skip(body, without_status, START, succeeded=False)
    assert may_skip(body, without_status, START, succeeded=True)
    assert not may_skip(body, SKIPPING, (), succeeded=True)


def test_a_requested_run_is_not_skipped() -> None:
    """The annotation asks for a run, whatever the cause is that arrives first."""
    body = resource(annotations={"operator-runner.dev/requested-at": "1"})
    body["status"] = {"conditions": [{"type": "Successful", "status": "True"}]}
    assert not may_skip(body, SKIPPING, START, succeeded=True)


@pytest.mark.parametrize(
    ("watch", "spec"),
    [
        (replace(SKIPPING, job=JobTemplate("image")), {}),
        (replace(SKIPPING, vars={"a": [{"b": "{{ now() }}"}]}), {}),
        (SKIPPING, {"text": "{{ now() }}"}),
        (PLAIN, {}),
    ],
)
def test_runs_with_other_inputs_are_not_recorded(watch: Watch, spec: Json) -> None:
    """Jobs have an image of their own; templates in vars and resources may do anything."""
    assert not has_known_inputs({**resource(), "spec": spec}, watch, lambda text: "{{" in text)


def test_text_that_is_not_a_template_is_known() -> None:
    """With markUnsafe the text of a resource is not evaluated."""
    body = {**resource(), "spec": {"text": "{{ now() }}"}}
    watch = replace(SKIPPING, mark_unsafe=True, vars={"a": "b"})
    assert has_known_inputs(body, watch, lambda text: "{{" in text)


@pytest.mark.parametrize(
    "data",
    [
        {"task_action": "ansible.builtin.command"},
        {"task_action": "kubernetes.core.k8s_exec"},
        {"task_action": "kubernetes.core.helm"},
        {"task_action": "operator_sdk.util.osdk_metric"},
        {"task_action": "my.own.k8s"},
        {"task_action": "k8s", "resolved_action": "my.own.k8s"},
        {"task_action": "debug", "task_path": "/opt/other/tasks/main.yml:1"},
    ],
)
def test_executed_tasks_with_other_inputs_are_impure(data: Json) -> None:
    """Modules that are not known, and tasks of files that were not examined."""
    tasks = ExecutedTasks([ROLE])
    tasks(RunEvent("runner_on_ok", data))
    assert tasks.impurity


def test_known_tasks_of_the_role_are_pure() -> None:
    """Modules for the cluster, and those that only compute."""
    tasks = ExecutedTasks([ROLE])
    for action in ("kubernetes.core.k8s", "k8s_info", "ansible.builtin.set_fact", "include_role"):
        data = {"task_action": action, "task_path": f"{ROLE}/tasks/main.yml:1"}
        tasks(RunEvent("runner_on_ok", data))
    play = {"task_action": "gather_facts", "task_path": "/var/runs/1/project/main.json:1"}
    tasks(RunEvent("runner_on_ok", play))
    tasks(RunEvent("playbook_on_stats", {}))
    assert tasks.impurity == ""
