"""Any resource, status and annotation that an API server takes is understood, or refused as such.

`make fuzz-resources` runs the same with a hundred thousand examples each.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from operator_runner.config.watches import expressions
from operator_runner.config.watches.selection import (
    blocks_upgrade,
    is_selected,
    selected_by,
    targets_of,
)
from operator_runner.controller.predicates.dependent_changes import Version, difference
from operator_runner.controller.predicates.primary_events import SeenResources
from operator_runner.controller.sources.primary import PrimaryWatcher
from operator_runner.controller.sources.references import referenced
from operator_runner.conversion.converter import ConversionError, Converter
from operator_runner.conversion.server import API_VERSION, InvalidReview, Review
from operator_runner.core.errors import ExpressionError
from operator_runner.core.json_bounds import decode
from operator_runner.core.model import (
    GVK,
    Cause,
    Conversion,
    DeclaredCondition,
    DeclaredStatus,
    Deselection,
    Drift,
    Finalizer,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectRef,
    ObjectTrigger,
    Reference,
    RunContent,
    Selection,
    Trigger,
    Watch,
)
from operator_runner.core.resource_states import ResourceStates
from operator_runner.core.settings import AnsibleSettings
from operator_runner.kube.object_readiness import DependentsReadiness, Readiness, health_of
from operator_runner.reconcile import conditions, kstatus_conditions
from operator_runner.reconcile.annotations import read_overrides
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.other_writers import OtherWriters
from operator_runner.reconcile.reconciler import Reconciler
from operator_runner.reconcile.results import Failed, Gone, NoRun, Succeeded
from operator_runner.reconcile.superseding import supersede_reason
from operator_runner.reconcile.variables import extra_vars
from operator_runner.telemetry.runs.records import RunStore
from tests.fakes.cluster import FakeCluster
from tests.fakes.dependents import FakeDependents
from tests.fakes.executor import FakeAccess, FakeExecutor, FakeVariableNames, failure, success
from tests.fakes.metrics import RecordedMetrics
from tests.fakes.queue import NoQueue
from tests.unit.fuzz.strategies import JSON, METADATA, RESOURCES, STATUSES, Json

FOO = GVK("example.com", "v1", "Foo")
PLAIN = Watch(FOO, RunContent(role=Path("/roles/foo")))
EVERYTHING = replace(
    PLAIN,
    finalizer=Finalizer("example.com/f", None, {"state": "absent"}),
    deselection=Deselection("name", None, {"state": "absent"}),
    selector=LabelSelector(
        {"name": "True"},
        (
            LabelSelectorRequirement("type", "NotIn", ("a",)),
            LabelSelectorRequirement("size", "Exists"),
        ),
    ),
    when="length(spec.secrets) > `1` && spec.size < `3`",
    watch_annotations_changes=True,
    mark_unsafe=True,
    kstatus=True,
    block_upgrade="status.conditions[?type=='Running'].status | [0] == 'True'",
    references=(
        Reference(GVK("", "v1", "Secret"), "spec.secrets[].name", "spec.name"),
        Reference(GVK("", "v1", "ConfigMap"), "keys(spec)"),
        Reference(GVK("", "v1", "Pod"), selector="spec"),
    ),
    triggers=(
        ObjectTrigger(
            FOO, when="length(spec.secrets) > `1`", name="spec.name", namespace="keys(@)"
        ),
        ObjectTrigger(FOO, matching="spec"),
    ),
    versions=("v1", "v2"),
)
ALL = replace(
    EVERYTHING,
    selector=LabelSelector(),
    when=None,
    versions=(),
    drift=Drift.WARN,
    status=DeclaredStatus(
        {"seen": "resource.status"},
        (DeclaredCondition("Available", "length(resource.spec.secrets) > `1`"),),
    ),
)
WATCHES = (PLAIN, EVERYTHING, ALL)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = [
    *(GVK("apps", "v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet")),
    *(GVK("", "v1", kind) for kind in ("Pod", "PersistentVolumeClaim", "Service")),
    GVK("batch", "v1", "Job"),
    FOO,
]
EXPRESSIONS = [
    *(f"a {operator} b" for operator in ("<", "<=", ">", ">=", "==", "!=", "&&", "||")),
    *(f"{name}(a)" for name in ("abs", "avg", "ceil", "floor", "keys", "length", "max", "min")),
    *(f"{name}(a)" for name in ("not_null", "reverse", "sort", "sum", "to_array", "to_number")),
    *(f"{name}(a)" for name in ("to_string", "type", "values")),
    *(f"{name}(a, b)" for name in ("contains", "ends_with", "join", "merge", "starts_with")),
    *(f"{name}(a, &b)" for name in ("max_by", "min_by", "sort_by")),
    *(f"{name}(to_number(a))" for name in ("abs", "ceil", "floor", "to_string")),
    *(f"{name}([to_number(a), to_number(b)])" for name in ("avg", "max", "min", "sort", "sum")),
    "map(&b, a)",
    "subtract(to_number(a), to_number(b))",
    "a[?b > `1`].b | [0]",
    "a.*.b[]",
    "a[::-1]",
]
TYPES = st.sampled_from([None, "ADDED", "MODIFIED", "DELETED"])
CHANGES: tuple[Callable[[list[Json]], list[Json]], ...] = (
    lambda given: conditions.started(given, 1, NOW),
    lambda given: conditions.finished(given, success(), 1, NOW),
    lambda given: conditions.finished(given, failure("t", "m"), 1, NOW),
    lambda given: conditions.failed(given, "m", 1, NOW),
    lambda given: conditions.interrupted(given, "m", 1, NOW),
    lambda given: conditions.deselected(given, success(), 1, NOW),
    kstatus_conditions.deselected,
    lambda given: kstatus_conditions.progressing(given, 1, NOW),
    lambda given: kstatus_conditions.applied(given, 1, NOW, DependentsReadiness(True)),
    lambda given: kstatus_conditions.applied(given, 1, NOW, DependentsReadiness(), ("Available",)),
    lambda given: kstatus_conditions.failing(given, 1, NOW),
    lambda given: kstatus_conditions.stalled(given, 1, NOW),
)
ORDINARY = {"Running", "Successful", "Failure", "Ready", "Reconciling", "Stalled"}

# The machine may be busy with something else.
without_hurry = settings(deadline=None)


@without_hurry
@given(st.lists(st.tuples(TYPES, RESOURCES), max_size=4))
def test_any_events_are_understood(events: list[tuple[str | None, Json]]) -> None:
    """Events of any content and order raise no internal error."""
    for watch in WATCHES:
        shown: dict[ObjectRef, Json | None] = {}
        seen = SeenResources()
        watcher = PrimaryWatcher([watch], lambda *_: None, lambda *_: None, seen)
        watcher.add_listener(shown.__setitem__)
        with structlog.testing.capture_logs() as lines:
            for type_, body in events:
                watcher.on_event(watch, type_, decode(json.dumps(body).encode()))
        assert not [line for line in lines if line["log_level"] == "error"]
        assert {ref for ref, body in shown.items() if body is not None} == set(seen.of_kind(FOO))


@without_hurry
@given(RESOURCES, RESOURCES)
def test_any_resource_can_be_judged(body: Json, later: Json) -> None:
    """Selectors, expressions, references, variables and superseding."""
    for watch in WATCHES:
        is_selected(body, watch)
        blocks_upgrade(body, watch)
        assert all(
            isinstance(ref, Selection) or ref.name
            for ref in referenced(body, watch, lambda _: None)
        )
        for trigger in watch.triggers:
            with suppress(ExpressionError):
                targets = targets_of(body, trigger)
                assert targets is None or all(targets.namespaces)
            with suppress(ExpressionError):
                selected_by(body, trigger)
        assert isinstance(supersede_reason(body, later, watch), str)
        for cleanup in (False, True):
            json.dumps(extra_vars(body, watch, cleanup=cleanup))
    overrides = read_overrides(body)
    assert overrides.error or overrides.period is None or overrides.period >= timedelta(0)


@without_hurry
@given(st.sampled_from(EXPRESSIONS), st.fixed_dictionaries({"a": JSON, "b": JSON}))
def test_any_value_of_an_expression_is_a_result_or_an_error(expression: str, body: Json) -> None:
    """Functions and comparisons of JMESPath, with values of any type."""
    with suppress(ValueError):
        expressions.evaluate(expression, body)


@without_hurry
@given(STATUSES)
def test_any_status_gets_conditions(status: Any) -> None:
    """Beside any existing conditions, ours are well formed."""
    old = read_conditions({"status": status})
    for change in CHANGES:
        new = change(old)
        json.dumps(conditions.with_reasons(change(new)))
        for condition in new:
            if condition not in old:
                assert condition["type"] in ORDINARY
                texts = [condition[name] for name in ("status", "reason", "message")]
                assert all(isinstance(text, str) for text in texts)
                assert condition["lastTransitionTime"]
        conditions.is_successful(new)


@without_hurry
@given(st.sampled_from(KINDS), RESOURCES)
def test_any_owned_object_has_a_readiness(kind: GVK, body: Json) -> None:
    """A resource may have any status."""
    assert isinstance(health_of(kind, body).readiness, Readiness)


@without_hurry
@given(METADATA, METADATA)
def test_any_metadata_can_be_compared(old: Json, new: Json) -> None:
    """Changes of an owned or referenced object, by any writer, can be described."""
    before, after = Version.of(old), Version.of(new)
    assert isinstance(difference(before, after), str)
    assert difference(before, before) == ""
    assert isinstance(before.is_older_than(after), bool)


@without_hurry
@given(RESOURCES, st.sampled_from([success(), success(changed=1), failure("t", "m")]))
def test_any_resource_can_be_reconciled(body: Json, outcome: Any) -> None:
    """From reading to the report, with and without all options of a watch."""

    async def reconcile(watch: Watch) -> Any:
        cluster = FakeCluster(body)
        dependencies = Dependencies(
            cluster,
            FakeAccess(),
            FakeExecutor(outcome),
            FakeDependents(),
            RecordedMetrics(watch.gvk),
            RunStore(),
            NoQueue(),
            FakeVariableNames(),
            OtherWriters(lambda: datetime.now(UTC), timedelta(seconds=30), ResourceStates()),
            latest_version=lambda _: "",
            run_guard=lambda *_: nullcontext(),
        )
        reconciler = Reconciler(watch, dependencies, AnsibleSettings(), timedelta(hours=10))
        return await reconciler.reconcile(ObjectRef.of(body), [Cause(Trigger.SPEC)])

    for watch in WATCHES:
        verdict = asyncio.run(reconcile(watch))
        assert isinstance(verdict, Succeeded | Failed | NoRun | Gone)


@without_hurry
@given(
    JSON
    | st.fixed_dictionaries(
        {
            "apiVersion": st.just(API_VERSION),
            "kind": st.just("ConversionReview"),
            "request": st.fixed_dictionaries(
                {
                    "uid": JSON | st.just("1"),
                    "desiredAPIVersion": st.sampled_from(["example.com/v1", "example.com/v2", ""]),
                    "objects": st.lists(JSON | RESOURCES, max_size=3),
                }
            )
            | JSON,
        }
    )
)
def test_any_conversion_review_is_answered(review: Any) -> None:
    """The response has objects or the reason of the failure."""
    conversion = Conversion(
        "v2",
        {expressions.path("spec.size"): "spec.name[0]", expressions.path("spec.a"): None},
        {expressions.path("spec.name"): "[spec.size]"},
    )
    converters = {("example.com", "Foo"): Converter(FOO, [conversion], expressions.evaluate)}
    with suppress(InvalidReview, ConversionError):
        json.dumps(list(Review(review, converters).convert()))
