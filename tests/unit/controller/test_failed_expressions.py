"""Failed expressions of triggers in the log and in Events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from structlog.testing import capture_logs

from operator_runner.controller.predicates.wake_on_fields import ExpressionPlace, FailedExpression
from operator_runner.controller.sources.failed_expressions import (
    MAX_EVENTS,
    WINDOW_SECONDS,
    FailedExpressions,
)
from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import GVK, EventSpec, Json, ObjectRef
from operator_runner.core.resource_states import ResourceState
from operator_runner.core.slot_assignment import slot_of
from operator_runner.reconcile.expression_conditions import ExpressionConditions
from tests.support.background import in_background

FOO = GVK("example.com", "v1", "Foo")
OBJECT = ObjectRef(GVK("", "v1", "Namespace"), "", "team-a")
ERROR = ExpressionError(
    "triggers[1].name", "metadata.labels", "expected text or a list of text, got a map"
)


def failure(*resources: str) -> FailedExpression:
    refs = frozenset(ObjectRef(FOO, "ns", name) for name in resources)
    return FailedExpression(FOO, ERROR, OBJECT, "u-team", refs)


class Emitted(list[tuple[Json, EventSpec]]):
    """The Events that were written."""

    def __init__(self) -> None:
        super().__init__()
        self._written: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self, body: Json, spec: EventSpec) -> None:
        self.append((body, spec))
        self._written.put_nowait(None)

    async def reach(self, count: int) -> None:
        """Wait until there are this many."""
        async with asyncio.timeout(60):
            while len(self) < count:
                await self._written.get()


@asynccontextmanager
async def reporting(
    emitted: Emitted,
    clock: Callable[[], float] = float,
    conditions: ExpressionConditions | None = None,
) -> AsyncIterator[FailedExpressions]:
    subject = FailedExpressions(
        emitted,
        lambda ref: "" if ref.name == "gone" else f"u-{ref.name}",
        conditions or ExpressionConditions(),
        clock,
    )
    async with in_background(subject.run()):
        yield subject


async def test_a_failure_is_logged_and_shown_on_the_resources() -> None:
    """Key, expression, object and reason; without a resource the Event is about the object."""
    emitted = Emitted()
    async with reporting(emitted) as subject:
        with capture_logs() as lines:
            subject.report(failure("a", "gone"))
            subject.report(failure())
        await emitted.reach(2)
    assert lines[0] == {
        "event": "Cannot evaluate an expression of watches.yaml",
        "log_level": "warning",
        "gvk": "example.com/v1, Kind=Foo",
        "key": "triggers[1].name",
        "expression": "metadata.labels",
        "object": "Namespace team-a",
        "error": "expected text or a list of text, got a map",
    }
    (about, spec), (of_object, _) = emitted
    assert about["metadata"] == {"name": "a", "namespace": "ns", "uid": "u-a"}
    assert of_object == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-a", "uid": "u-team"},
    }
    assert (spec.reason, spec.warning) == ("InvalidExpression", True)
    assert "triggers[1].name of watches.yaml fails for Namespace team-a" in spec.note


async def test_the_value_of_a_secret_is_not_shown() -> None:
    """The error of an expression quotes it; of other objects it is truncated."""
    emitted = Emitted()
    message = f"invalid type for value: {'hunter2' * 1000}"
    error = ExpressionError("wakeOn[0].fields[0]", "length(data)", message)
    async with reporting(emitted) as subject:
        with capture_logs() as lines:
            for kind in ("Secret", "ConfigMap"):
                one = ObjectRef(GVK("", "v1", kind), "ns", "a")
                subject.report(FailedExpression(FOO, error, one, "u-a"))
        await emitted.reach(2)
    shown = [[line["error"] for line in lines], [spec.note for _, spec in emitted]]
    assert all("hunter2" not in secret for secret, _ in shown)
    assert all("hunter2" in other and len(other) < 600 for _, other in shown)


async def test_the_condition_has_the_text_of_the_event() -> None:
    """Until the expression can be evaluated again."""
    conditions, resource = ExpressionConditions(), ResourceState(ObjectRef(FOO, "ns", "a"))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    async with reporting(Emitted(), conditions=conditions) as subject:
        subject.report(failure("a"))
        (condition,) = conditions.put_condition([], resource, 1, now)
        assert condition["message"] == (
            "triggers[1].name of watches.yaml fails for Namespace team-a: metadata.labels:"
            " expected text or a list of text, got a map"
        )
        subject.recovered(ExpressionPlace(FOO, ERROR.key, OBJECT))
        assert conditions.put_condition([condition], resource, 1, now) == []


async def test_each_failure_is_counted_by_one_replica() -> None:
    """The owner of the object; a replica that gains its slot counts what fails at that time."""
    mine, counted = True, list[str]()
    conditions = ExpressionConditions()
    subject = FailedExpressions(
        Emitted(),
        str,
        conditions,
        count=lambda _, key: counted.append(key),
        owns=lambda uid: mine and uid == "u-team",
    )
    subject.report(failure("a"))
    assert counted == [ERROR.key]
    mine = False
    subject.report(failure("a"))
    assert counted == [ERROR.key]

    subject.gained({slot_of("u-team") + 1})
    assert counted == [ERROR.key]
    subject.gained({slot_of("u-team")})
    assert counted == [ERROR.key] * 2
    subject.recovered(ExpressionPlace(FOO, ERROR.key, OBJECT))
    subject.gained({slot_of("u-team")})
    assert counted == [ERROR.key] * 2


async def test_thousands_of_failures_are_a_few_events() -> None:
    """Each has its line in the log; after the window there are Events again."""
    emitted, now = Emitted(), 0.0
    async with reporting(emitted, lambda: now) as subject:
        with capture_logs() as lines:
            for _ in range(1000):
                subject.report(failure())
            now = WINDOW_SECONDS
            subject.report(failure())
        await emitted.reach(MAX_EVENTS + 1)
    assert len(lines) == 1001
    assert len(emitted) == MAX_EVENTS + 1
