"""Ready, Reconciling and Stalled for watches with `kstatus: true`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from operator_runner.core.model import DeclaredCondition, DeclaredStatus, Json
from operator_runner.kube.object_readiness import DependentsReadiness
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import PERIOD, PLAIN, REF, SPEC, Case, resource

WATCH = replace(PLAIN, kstatus=True)


class ResourceState:
    """The status of a resource at one moment: conditions by type, and the generation."""

    def __init__(self, body: Json | None) -> None:
        assert body is not None
        self.observed = body["status"].get("observedGeneration")
        self.conditions = {c["type"]: c for c in body["status"]["conditions"]}

    def of(self, type_: str) -> tuple[Any, ...] | None:
        found = self.conditions.get(type_)
        return found and (found["status"], found["reason"], found["observedGeneration"])


async def test_a_success_is_ready() -> None:
    """Ready has the generation; false conditions are removed; a resync writes nothing."""
    cluster = FakeCluster(resource(generation=4))
    case = Case(WATCH, cluster, success(changed=1), success())
    during: list[ResourceState] = []
    bodies = cluster.objects
    case.executor.during = lambda: during.append(ResourceState(bodies[REF]))
    await case.reconciler.reconcile(REF, SPEC)
    assert during[0].of("Ready") == ("Unknown", "Progressing", 4)
    assert during[0].of("Reconciling") == ("True", "Progressing", 4)
    assert during[0].observed is None
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("True", "Succeeded", 4)
    assert seen.observed == 4
    assert not {"Reconciling", "Stalled"} & seen.conditions.keys()
    assert seen.conditions["Successful"]["status"] == "True"
    version = await case.version()
    await case.reconciler.reconcile(REF, SPEC)
    assert await case.version() == version


async def test_a_run_that_requeues_is_reconciling() -> None:
    """Not ready, not even where it was before, until a run ends without asking."""
    cluster = FakeCluster(resource(generation=2))
    asking = replace(success(), requeue_after=timedelta(seconds=10))
    case = Case(WATCH, cluster, success(), asking, asking, success())
    await case.reconciler.reconcile(REF, SPEC)
    assert ResourceState(await cluster.get(REF)).of("Ready") == ("True", "Succeeded", 2)
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("Unknown", "Progressing", 2)
    assert seen.of("Reconciling") == ("True", "Progressing", 2)
    assert seen.conditions["Ready"]["message"].endswith("the role asked to run again in 10s")
    version = await case.version()
    await case.reconciler.reconcile(REF, SPEC)
    assert await case.version() == version
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("True", "Succeeded", 2)
    assert "Reconciling" not in seen.conditions


async def test_a_failure_is_tried_again() -> None:
    """Not ready, with the reason; it stays known through the next attempt, until that succeeds."""
    cluster = FakeCluster(resource(generation=2))
    case = Case(WATCH, cluster, failure("Write", "no such port"), success())
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("False", "Failed", 2)
    assert seen.of("Reconciling") == ("True", "ProgressingWithRetry", 2)
    assert "no such port" in seen.conditions["Ready"]["message"]
    assert seen.observed == 2
    during: list[ResourceState] = []
    case.executor.during = lambda: during.append(ResourceState(cluster.objects[REF]))
    await case.reconciler.reconcile(REF, SPEC)
    assert during[0].of("Ready") == ("False", "Failed", 2)
    assert ResourceState(await cluster.get(REF)).of("Ready") == ("True", "Succeeded", 2)


async def test_what_cannot_be_run_is_stalled_until_it_is_edited() -> None:
    """An invalid annotation: no retry helps, and the message has the error."""
    cluster = FakeCluster(resource(annotations={PERIOD: "often"}))
    case = Case(WATCH, cluster, success())
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Stalled") == ("True", "Failed", 1)
    assert seen.of("Ready") == ("False", "Stalled", 1)
    assert "often" in seen.conditions["Stalled"]["message"]
    cluster.edit(REF, lambda body: body["metadata"].update(annotations={}, generation=2))
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("True", "Succeeded", 2)
    assert "Stalled" not in seen.conditions


async def test_without_the_key_nothing_of_it_is_written() -> None:
    """Existing projects have the three conditions of ansible-operator, with the generation."""
    cluster = FakeCluster(resource())
    await Case(PLAIN, cluster, success()).reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.conditions.keys() == {"Running", "Successful", "Failure"}
    assert seen.observed == 1


WAITING = DependentsReadiness(False, False, "ImagePullFailed", "Deployment web is not ready")


async def test_ready_needs_the_objects_of_the_role() -> None:
    """Reconciling while these are not ready, stalled if one has failed; one write for each."""
    cluster = FakeCluster(resource(generation=2))
    case = Case(WATCH, cluster, success(changed=1), *(success() for _ in range(4)))
    state = WAITING
    case.dependents.readiness = lambda _: state
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("False", "ImagePullFailed", 2)
    assert seen.of("Reconciling") == ("True", "ImagePullFailed", 2)
    assert seen.conditions["Ready"]["message"] == "Deployment web is not ready"
    assert seen.conditions["Successful"]["status"] == "True"
    version = await case.version()
    await case.reconciler.reconcile(REF, SPEC)
    assert await case.version() == version
    state = replace(WAITING, failed=True)
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Stalled") == ("True", "ImagePullFailed", 2)
    assert "Reconciling" not in seen.conditions
    state = DependentsReadiness(True)
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("True", "Succeeded", 2)
    assert not {"Reconciling", "Stalled"} & seen.conditions.keys()


async def test_ready_needs_the_conditions_that_the_watch_names() -> None:
    """The declared conditions of the same run, with the reason of the first that is not True."""
    status = DeclaredStatus(
        {},
        (
            DeclaredCondition("Migrated", "resource.spec.migrated", "'Migrating'", "'wait'"),
            DeclaredCondition("Available", "readiness.ready", "readiness.reason"),
            DeclaredCondition("Other", "`false`"),
        ),
        uses_readiness=True,
    )
    cluster = FakeCluster(resource(generation=2))
    watch = replace(WATCH, status=status, ready_when=("Migrated", "Available"))
    case = Case(watch, cluster, success(), failure("Write", "no"), success(), success())
    state = DependentsReadiness()
    case.dependents.readiness = lambda _: state
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("False", "Migrating", 2)
    assert seen.conditions["Reconciling"]["message"] == "wait"
    assert seen.of("Available") == ("True", "DependentsReady", 2)
    # A run that has failed may not have read what there is.
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == ("False", "Failed", 2)
    assert seen.of("Available") == ("Unknown", "TaskFailed", 2)
    cluster.edit(REF, lambda body: body["spec"].update(migrated=True))
    state = WAITING
    await case.reconciler.reconcile(REF, SPEC)
    seen = ResourceState(await cluster.get(REF))
    assert seen.of("Ready") == seen.of("Available") == ("False", "ImagePullFailed", 2)
    state = DependentsReadiness(True)
    await case.reconciler.reconcile(REF, SPEC)
    assert ResourceState(await cluster.get(REF)).of("Ready") == ("True", "Succeeded", 2)
