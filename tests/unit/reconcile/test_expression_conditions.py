"""The condition ExpressionFailure: which resources have it, and when it is to be written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.core.resource_states import ResourceState
from operator_runner.reconcile.expression_conditions import ExpressionConditions

FOO = GVK("example.com", "v1", "Foo")
TEAM = ObjectRef(GVK("", "v1", "Namespace"), "", "team-a")
POD = ObjectRef(GVK("", "v1", "Pod"), "ns", "web")
A, B = ObjectRef(FOO, "ns", "a"), ObjectRef(FOO, "ns", "b")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHER: Json = {"type": "Successful", "status": "True"}


class Changes(list[tuple[str, str]]):
    def __call__(self, resource: ObjectRef, key: str, what: str) -> None:
        self.append((resource.name, f"{key} {what}"))


def message(
    subject: ExpressionConditions, resource: ObjectRef, state: ResourceState | None = None
) -> str | None:
    """Return the message of the condition, None if the resource has none."""
    found = subject.put_condition([OTHER], state or ResourceState(resource), 1, NOW)
    assert found[0] == OTHER
    return None if found == [OTHER] else str(found[1]["message"])


def test_a_failure_is_shown_until_the_expression_can_be_evaluated() -> None:
    """The condition is True with what fails, and removed then; the others stay."""
    changes = Changes()
    subject = ExpressionConditions(changed=changes)
    subject.failed(FOO, "triggers[0].name", TEAM, "no text", frozenset({A}))
    shown = subject.put_condition([OTHER], ResourceState(A), 1, NOW)
    assert shown == [
        OTHER,
        {
            "type": "ExpressionFailure",
            "status": "True",
            "reason": "InvalidExpression",
            "message": "no text",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
    ]
    assert subject.put_condition(shown, ResourceState(A), 1, NOW + timedelta(hours=1)) == shown
    assert message(subject, B) is None
    subject.recovered(FOO, "triggers[0].name", TEAM)
    assert subject.put_condition(shown, ResourceState(A), 1, NOW) == [OTHER]
    assert changes == [
        ("a", "triggers[0].name fails for Namespace team-a"),
        ("a", "triggers[0].name no longer fails for Namespace team-a"),
    ]


def test_a_failure_stays_about_the_resources_of_before() -> None:
    """Later states of the object are about none, and repetitions change nothing."""
    changes = Changes()
    subject = ExpressionConditions(changed=changes)
    subject.failed(FOO, "triggers[0].name", TEAM, "a number", frozenset({A}))
    for _ in range(2):
        subject.failed(FOO, "triggers[0].name", TEAM, "a map", frozenset())
    assert message(subject, A) == "a map"
    assert len(changes) == 2
    subject.recovered(FOO, "triggers[0].when", TEAM)
    assert message(subject, A) == "a map"


def test_owners_and_referrers_of_the_object_are_concerned() -> None:
    """Of the kind of the watch; for an expression over a resource that resource itself."""
    changes = Changes()
    other = ObjectRef(GVK("example.com", "v1", "Bar"), "ns", "other")
    subject = ExpressionConditions(lambda ref: {A, other} if ref == POD else (), changes)
    subject.failed(FOO, "wakeOn[0].fields[0]", POD, "no list", frozenset())
    subject.failed(FOO, "references[0].name", B, "no name", frozenset())
    assert [name for name, _ in changes] == ["a", "b"]
    assert message(subject, A) == "no list"
    assert message(subject, B) == "no name"
    assert message(subject, other) is None


def test_expressions_of_the_status_are_shown_and_counted() -> None:
    """Each once until its error changes; no run is started, because one ends."""
    changes, counted, state = Changes(), list[str](), ResourceState(A)
    subject = ExpressionConditions(changed=changes, count=lambda _, key: counted.append(key))
    for _ in range(2):
        subject.evaluated(
            state, {"status.fields.size": "no list", "status.fields.max": "no number"}
        )
    assert message(subject, A, state) == "no list; no number"
    assert counted == ["status.fields.size", "status.fields.max"]
    subject.evaluated(state, {"status.fields.size": "no list"})
    assert message(subject, A, state) == "no list"
    subject.evaluated(state, {})
    assert message(subject, A, state) is None
    subject.evaluated(state, {"status.fields.size": "no list"})
    assert counted[2:] == ["status.fields.size"]
    assert message(subject, A) is None


def test_thousands_of_failures_are_a_short_message() -> None:
    """The first ones, and how many more there are."""
    subject = ExpressionConditions()
    for number in range(5000):
        pod = ObjectRef(POD.gvk, "ns", f"web-{number}")
        subject.failed(FOO, "triggers[0].name", pod, "x" * 5000, frozenset({A}))
    text = message(subject, A) or ""
    assert text.endswith("; and 4990 more")
    assert len(text) < 11_000


def test_a_condition_of_another_writer_stays() -> None:
    """A role may have a condition of this type."""
    own = {"type": "ExpressionFailure", "status": "True", "reason": "MyReason"}
    assert ExpressionConditions().put_condition([own], ResourceState(A), 1, NOW) == [own]
