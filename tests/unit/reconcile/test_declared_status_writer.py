"""A declared status is written with the conditions, in one patch, whatever is wrong with it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog.testing

from operator_runner.core.errors import Invalid
from operator_runner.core.model import (
    GVK,
    Cause,
    DeclaredCondition,
    DeclaredStatus,
    Json,
    ObjectRef,
    RunOutcome,
    Trigger,
)
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from operator_runner.reconcile.results import Failed
from tests.fakes.cluster import FakeCluster
from tests.fakes.executor import failure, success
from tests.unit.reconcile.test_reconciler import PLAIN, REF, SPEC, Case, resource

AVAILABLE = DeclaredCondition(
    "Available", "dependents[0].status.ready == `2`", "dependents[0].status.reason"
)
FIELDS = {
    "ready": "dependents[0].status.ready",
    "members": "dependents[0].status.members",
    "message": "result.message",
    "size": "resource.spec.size",
}
DECLARED = DeclaredStatus(FIELDS, (AVAILABLE,), uses_dependents=True)
PERIODIC = [Cause(Trigger.PERIOD)]


class Crd(FakeCluster):
    """A cluster whose CRD has a schema of the status."""

    def __init__(self, *bodies: Json) -> None:
        super().__init__(*bodies)
        self.patches: list[Json] = []
        self.refuse: Callable[[Json], str] = lambda _: ""
        self.drop: tuple[str, ...] = ()

    async def patch_status(self, body: Json, status: Json) -> Json:
        """Refuse a status, or drop fields, as the schema of the test does."""
        self.patches.append(copy.deepcopy(status))
        if error := self.refuse(status):
            raise Invalid(error, 422)
        return await super().patch_status(
            body, {key: value for key, value in status.items() if key not in self.drop}
        )


class Declared(Case):
    """A reconciler of a watch that declares a status, with one dependent."""

    def __init__(
        self, *outcomes: RunOutcome, declared: DeclaredStatus = DECLARED, **watch: Any
    ) -> None:
        self.crd = Crd(resource(uid="u1"))
        self.dependent: Json = {"ready": 1, "reason": "Starting", "members": {"a": 1, "b": 2}}
        super().__init__(
            replace(PLAIN, status=declared, **watch),
            self.crd,
            *outcomes,
            dependents=lambda ref: [{"status": self.dependent}] if ref == REF else [],
        )

    async def status(self) -> Json:
        body = await self.crd.get(REF)
        assert body is not None
        found: Json = body["status"]
        return found

    def reasons(self) -> list[str]:
        """Return the reasons of the warnings among the Events."""
        return [event.reason for event in self.crd.events if event.warning]


async def test_the_declared_status_is_in_the_patch_of_the_conditions() -> None:
    """One patch at the end; a steady resource is not written, and one change is one patch."""
    case = Declared(success(changed=1), success())
    await case.reconciler.reconcile(REF, SPEC)
    assert len(case.crd.patches) == 2  # the start, and the end
    found = await case.status()
    assert found["ready"] == 1
    assert found["members"] == {"a": 1, "b": 2}
    assert found["size"] == 3
    assert found["message"] == "Last reconciliation succeeded"
    available = (await case.conditions())["Available"]
    assert (available["status"], available["reason"]) == ("False", "Starting")
    assert available["observedGeneration"] == 1
    await case.reconciler.reconcile(REF, PERIODIC)
    assert len(case.crd.patches) == 2
    case.dependent = {"ready": 2, "reason": "Started", "members": {"b": 2}}
    await case.reconciler.reconcile(REF, [Cause(Trigger.DEPENDENT)])
    assert len(case.crd.patches) == 3
    found = await case.status()
    assert (found["ready"], found["members"]) == (2, {"b": 2})
    assert (await case.conditions())["Available"]["status"] == "True"
    case.dependent = {}
    await case.reconciler.reconcile(REF, [Cause(Trigger.DEPENDENT)])
    assert {"ready", "members"}.isdisjoint(await case.status())
    assert (await case.conditions())["Available"]["status"] == "False"
    assert case.reasons() == []


async def test_conditions_of_invalid_types_are_not_an_error() -> None:
    """Another client wrote them; a steady run compares what it wrote with them."""
    case = Declared(success(), success())
    body = await case.crd.get(REF)
    assert body is not None
    odd: list[Json] = [{"type": {"a": 1}}, {"type": ["Available"], "status": {}}]
    await case.crd.patch_status(body, {"conditions": odd})
    for _ in range(2):
        await case.reconciler.reconcile(REF, SPEC)
    assert (await case.status())["ready"] == 1
    assert case.reasons() == []


async def test_what_the_role_wrote_is_seen_though_its_event_is_late() -> None:
    """The write is refused, because the resource changed; the expressions are evaluated again."""
    case = Declared(declared=DeclaredStatus({"seen": "resource.status.phase"}))
    case.latest_version = "2"  # as after the report of the start

    def write() -> None:
        case.crd.edit(REF, lambda body: body["status"].update(phase="Done"))

    case.executor.during = write
    await case.reconciler.reconcile(REF, SPEC)
    assert (await case.status())["seen"] == "Done"
    assert len(case.crd.patches) == 3  # the start, the refused one, and the end


async def test_what_a_steady_run_wrote_is_seen_though_its_event_is_late() -> None:
    """Otherwise nothing would differ and nothing be refused: the status would be one run late."""
    case = Declared(declared=DeclaredStatus({"seen": "resource.status.phase"}))
    await case.reconciler.reconcile(REF, SPEC)
    case.latest_version = await case.version()

    def write() -> None:
        case.crd.edit(REF, lambda body: body["status"].update(phase="Done"))
        version = case.crd.objects[REF]["metadata"]["resourceVersion"]
        case.writes.record_foreign(REF, REF, version)

    case.executor.during = write
    await case.reconciler.reconcile(REF, PERIODIC)
    assert (await case.status())["seen"] == "Done"
    case.executor.during = lambda: None
    case.latest_version = await case.version()
    reads = case.crd.reads
    await case.reconciler.reconcile(REF, PERIODIC)
    assert case.crd.reads == reads + 1


async def test_a_failed_run_writes_it_too() -> None:
    """The message is that of the failure, and what is known of dependents is shown."""
    case = Declared(failure("Copy", "no space"))
    assert await case.reconciler.reconcile(REF, SPEC) == Failed()
    found = await case.status()
    assert found["message"] == "no space (task 'Copy')"
    assert found["ready"] == 1


async def test_without_manage_status_nothing_is_written() -> None:
    """The status stays as it is."""
    case = Declared(success(changed=1), manage_status=False)
    await case.reconciler.reconcile(REF, SPEC)
    assert case.crd.patches == []


async def test_an_expression_that_fails_is_reported_once() -> None:
    """The Event and the log name key, expression and object; other fields are written."""
    count = "length(dependents[0].status.list)"
    declared = DeclaredStatus({"ok": "result.ok", "count": count}, uses_dependents=True)
    case = Declared(success(changed=1), success(), declared=declared)
    with structlog.testing.capture_logs() as logs:
        for causes in (SPEC, PERIODIC, PERIODIC):
            await case.reconciler.reconcile(REF, causes)
    assert (await case.status())["ok"] == 3
    assert case.reasons() == ["InvalidExpression"]
    note = case.crd.events[0].note
    assert note.startswith("watches.yaml: status.fields.count: ")
    assert note.endswith(f"({count})")
    (line,) = [log for log in logs if log["event"] == "Invalid expression in watches.yaml"]
    assert (line["key"], line["object"]) == ("status.fields.count", "Foo default/a")
    assert line["expression"] == count
    case.dependent = {"list": [1]}
    await case.reconciler.reconcile(REF, PERIODIC)
    assert (await case.status())["count"] == 1
    case.dependent = {}
    await case.reconciler.reconcile(REF, PERIODIC)
    assert case.reasons() == ["InvalidExpression"] * 2
    assert (await case.status())["count"] == 1


async def test_an_expression_that_fails_is_a_condition_and_counted() -> None:
    """In the patch of the other conditions; it is removed when the expression has a value."""
    count = "length(dependents[0].status.list)"
    case = Declared(success(), declared=DeclaredStatus({"count": count}, uses_dependents=True))
    counted: list[tuple[GVK, str]] = []
    expressions = ExpressionConditions(count=lambda *failure: counted.append(failure))
    case.depend(expressions=expressions)
    for causes in (SPEC, PERIODIC):
        await case.reconciler.reconcile(REF, causes)
        failure_ = (await case.conditions())["ExpressionFailure"]
        assert (failure_["status"], failure_["reason"]) == ("True", "InvalidExpression")
        text = f"status.fields.count of watches.yaml fails: {count}: "
        assert failure_["message"].startswith(text)
        assert len(case.crd.patches) == 2  # the start, and the end
    assert counted == [(REF.gvk, "status.fields.count")]
    case.dependent = {"list": [1]}
    await case.reconciler.reconcile(REF, PERIODIC)
    assert "ExpressionFailure" not in await case.conditions()
    assert len(case.crd.patches) == 3


@pytest.mark.parametrize("named", [True, False])
async def test_a_field_that_the_crd_refuses_is_left_out(named: bool) -> None:
    """The Event names them; the conditions are written, and nothing is tried again until then."""
    case = Declared(success(changed=1), success())
    error = 'Foo "a" is invalid: status.members: Invalid value: "object"' if named else "denied"
    case.crd.refuse = lambda status: error if "members" in status else ""
    await case.reconciler.reconcile(REF, SPEC)
    found = await case.status()
    assert "members" not in found
    assert ("ready" in found) is named
    assert ("Available" in await case.conditions()) is named
    assert (await case.conditions())["Successful"]["status"] == "True"
    assert case.reasons() == ["InvalidStatus"]
    (event,) = [event for event in case.crd.events if event.warning]
    assert "status.members" in event.note
    assert "correct the expression in watches.yaml, or the schema of the CRD" in event.note
    requests = len(case.crd.patches)
    await case.reconciler.reconcile(REF, PERIODIC)
    assert len(case.crd.patches) == requests
    case.dependent = {"ready": 1, "reason": "Starting", "members": {"a": 2}}
    case.crd.refuse = lambda _: ""
    await case.reconciler.reconcile(REF, PERIODIC)
    assert (await case.status())["members"] == {"a": 2}
    assert case.reasons() == ["InvalidStatus"]


async def test_conditions_that_the_crd_refuses_are_left_out() -> None:
    """Those of the runner are written all the same."""
    case = Declared(success(changed=1))
    case.crd.refuse = lambda status: (
        'status.conditions[3].type: Unsupported value: "Available"'
        if any(each["type"] == "Available" for each in status["conditions"])
        else ""
    )
    await case.reconciler.reconcile(REF, SPEC)
    assert set(await case.conditions()) == {"Running", "Successful", "Failure"}
    assert (await case.status())["ready"] == 1
    assert case.reasons() == ["InvalidStatus"]


async def test_what_the_crd_refuses_of_the_runner_is_an_error() -> None:
    """With nothing declared left the refusal is that of the conditions themselves."""
    case = Declared(success(changed=1))
    case.crd.refuse = lambda status: "denied" if status["conditions"] else ""
    with pytest.raises(Invalid, match="denied"):
        await case.reconciler.reconcile(REF, SPEC)


async def test_a_field_without_a_schema_is_reported_and_not_written_for_ever() -> None:
    """The API server drops it; the Event names what to add to the CRD."""
    case = Declared(success(changed=1), success())
    case.crd.drop = ("members",)
    await case.reconciler.reconcile(REF, SPEC)
    assert case.reasons() == ["InvalidStatus"]
    assert "properties.status.properties.members" in case.crd.events[0].note
    requests = len(case.crd.patches)
    for _ in range(3):
        await case.reconciler.reconcile(REF, PERIODIC)
    assert len(case.crd.patches) == requests
    case.dependent = {"ready": 2, "members": {"c": 1}}
    await case.reconciler.reconcile(REF, PERIODIC)
    assert (await case.status())["ready"] == 2
    assert case.reasons() == ["InvalidStatus"]


async def test_a_deleted_resource_is_removed_from_the_cache() -> None:
    """A new one of the name gets the reports again."""
    declared = DeclaredStatus({"count": "length(result.nothing)"})
    case = Declared(success(), declared=declared)
    await case.reconciler.reconcile(REF, SPEC)
    del case.crd.objects[REF]
    await case.reconciler.reconcile(REF, SPEC)
    new = resource(uid="u2")
    case.crd.objects[ObjectRef.of(new)] = new
    await case.reconciler.reconcile(REF, SPEC)
    assert case.reasons() == ["InvalidExpression"] * 2
