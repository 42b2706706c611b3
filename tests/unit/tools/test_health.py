"""Health checks for Argo CD and Flux, evaluated by a real Lua and a real CEL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from lupa.lua54 import LuaRuntime

from operator_runner.core.model import GVK, Json, RunContent, Watch
from operator_runner.kube.object_readiness import DependentsReadiness
from operator_runner.reconcile import conditions, kstatus_conditions
from operator_runner.tools.health import argocd, flux
from tests.fakes.executor import failure, success

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PLAIN = Watch(GVK("shop.example.com", "v1", "Web"), RunContent())
KSTATUS = replace(PLAIN, kstatus=True)
UNREADY = DependentsReadiness(False, False, "ImagePullFailed", "Deployment web is not ready")
WAITING = replace(success(), requeue_after=timedelta(seconds=10))


class Resource:
    """A resource in the states that the reconciler writes; the generation is that of the spec."""

    def __init__(self, *, kstatus: bool) -> None:
        self.generation, self.kstatus = 1, kstatus
        self.status: Json | None = None

    def write(
        self,
        update: Callable[[list[Json], int, datetime], list[Json]],
        add: Callable[[list[Json], int, datetime], list[Json]],
        *,
        ends: bool = True,
    ) -> None:
        """Write conditions, and with kstatus the others."""
        old = self.status or {"conditions": []}
        new = update(old["conditions"], self.generation, NOW)
        new = add(new, self.generation, NOW) if self.kstatus else new
        seen = {"observedGeneration": self.generation} if ends else {}
        self.status = old | {"conditions": new} | seen

    def starts(self) -> None:
        self.write(conditions.started, kstatus_conditions.progressing, ends=False)

    def succeeds(self, readiness: DependentsReadiness = DependentsReadiness(True)) -> None:  # noqa: B008 (frozen)
        self.write(
            lambda old, *at: conditions.finished(old, success(changed=1), *at),
            lambda old, seen, now: kstatus_conditions.applied(old, seen, now, readiness),
        )

    def requeues(self) -> None:
        self.write(
            lambda old, *at: conditions.finished(old, WAITING, *at), kstatus_conditions.waiting
        )

    def fails(self) -> None:
        self.write(
            lambda old, *at: conditions.finished(old, failure("Write", "no disk"), *at),
            kstatus_conditions.failing,
        )

    def cannot_run(self) -> None:
        self.write(
            lambda old, *at: conditions.failed(old, "invalid", *at), kstatus_conditions.stalled
        )

    def is_suspended(self) -> None:
        self.write(
            lambda old, *at: conditions.suspended(old, "paused", *at),
            lambda old, *_: kstatus_conditions.suspended(old),
        )

    def is_deselected(self) -> None:
        self.write(
            lambda old, *at: conditions.deselected(old, success(), *at),
            lambda old, *_: kstatus_conditions.deselected(old),
        )

    def is_edited(self) -> None:
        self.generation += 1

    def body(self) -> Json:
        found: Json = {"metadata": {"name": "a", "generation": self.generation}, "spec": {}}
        return found if self.status is None else found | {"status": self.status}


def health_in_argocd(watch: Watch, body: Json) -> tuple[str, str]:
    """Return status and message as Argo CD's Lua does."""
    (lua,) = argocd([watch])["data"].values()
    runtime = LuaRuntime()
    runtime.globals().obj = runtime.table_from(body, recursive=True)
    found = runtime.execute(lua)
    return found.status, found.message


def health_in_flux(watch: Watch, body: Json) -> str:
    """Return the status as Flux does: by the generation, then by the expressions in order."""
    (check,) = flux([watch])["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == ("shop.example.com/v1", "Web")
    generation = body["metadata"]["generation"]
    if body.get("status", {}).get("observedGeneration", generation) != generation:
        return "InProgress"
    environment = celpy.Environment()
    for key, status in (("failed", "Failed"), ("current", "Current")):
        program = environment.program(environment.compile(check[key]))
        if program.evaluate({name: json_to_cel(body[name]) for name in body}):
            return status
    return "InProgress"


STEPS: list[tuple[str, Any, dict[str, str]]] = [
    ("is_edited", (), {"plain": "Progressing InProgress", "kstatus": "Progressing InProgress"}),
    ("starts", (), {"plain": "Progressing InProgress", "kstatus": "Progressing InProgress"}),
    ("requeues", (), {"plain": "Progressing InProgress", "kstatus": "Progressing InProgress"}),
    ("succeeds", (UNREADY,), {"plain": "Healthy Current", "kstatus": "Progressing InProgress"}),
    (
        "succeeds",
        (replace(UNREADY, failed=True),),
        {"plain": "Healthy Current", "kstatus": "Degraded Failed"},
    ),
    ("succeeds", (), {"plain": "Healthy Current", "kstatus": "Healthy Current"}),
    ("is_edited", (), {"plain": "Progressing InProgress", "kstatus": "Progressing InProgress"}),
    ("starts", (), {"plain": "Progressing InProgress", "kstatus": "Progressing InProgress"}),
    ("fails", (), {"plain": "Degraded Failed", "kstatus": "Degraded InProgress"}),
    ("is_edited", (), {"plain": "Progressing InProgress", "kstatus": "Progressing InProgress"}),
    ("cannot_run", (), {"plain": "Degraded Failed", "kstatus": "Degraded Failed"}),
    ("succeeds", (), {"plain": "Healthy Current", "kstatus": "Healthy Current"}),
    ("is_suspended", (), {"plain": "Suspended Current", "kstatus": "Suspended Current"}),
    ("succeeds", (), {"plain": "Suspended Current", "kstatus": "Suspended Current"}),
    ("is_deselected", (), {"plain": "Suspended Current", "kstatus": "Suspended Current"}),
]


@pytest.mark.parametrize("kstatus", [False, True])
def test_both_tools_see_each_state_of_a_resource(kstatus: bool) -> None:
    """From the creation to edits, failures, a suspension and a deselection."""
    watch, resource = KSTATUS if kstatus else PLAIN, Resource(kstatus=kstatus)
    for number, (step, arguments, expected) in enumerate(STEPS):
        getattr(resource, step)(*arguments)
        body = resource.body()
        status, message = health_in_argocd(watch, body)
        found = f"{status} {health_in_flux(watch, body)}"
        assert found == expected["kstatus" if kstatus else "plain"], (number, step, body)
        assert message


def test_the_message_is_that_of_the_condition() -> None:
    """What a person sees in the tool is the cause."""
    resource = Resource(kstatus=True)
    assert health_in_argocd(KSTATUS, resource.body())[1] == "Waiting for the operator"
    resource.succeeds(UNREADY)
    assert health_in_argocd(KSTATUS, resource.body())[1] == "Deployment web is not ready"
    resource.fails()
    assert health_in_argocd(KSTATUS, resource.body())[1].startswith("no disk")


def test_kinds_without_conditions_have_no_check() -> None:
    """Their status is not that of the operator; a kind of several versions has one Lua."""
    other = replace(PLAIN, gvk=GVK("shop.example.com", "v2", "Web"))
    watches = [PLAIN, other, replace(PLAIN, gvk=GVK("", "v1", "Pod"), manage_status=False)]
    assert [*argocd(watches)["data"]] == ["resource.customizations.health.shop.example.com_Web"]
    versions = [each["apiVersion"] for each in flux(watches)["healthCheckExprs"]]
    assert versions == ["shop.example.com/v1", "shop.example.com/v2"]
