"""The status that a watch declares: values of expressions, and what is wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operator_runner.core.model import (
    DeclaredCondition,
    DeclaredStatus,
    Json,
    RunOutcome,
    Stats,
    TaskFailure,
)
from operator_runner.reconcile.declared_status import (
    EvaluatedStatus,
    evaluate,
    result_of,
    result_of_error,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
VALUES: Json = {
    "resource": {"spec": {"size": 3, "tags": ["a", "b"]}, "status": None},
    "dependents": [
        {
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "status": {
                "readyReplicas": 2,
                "conditions": [
                    {"type": "Available", "status": "False", "reason": "MinimumReplicas"}
                ],
            },
        }
    ],
    "schedule": {},
    "result": {"successful": True, "ok": 3},
}


def condition(status: str, reason: str | None = None, message: str | None = None) -> Json:
    """Evaluate one condition of the type Good, and return it."""
    (found,) = evaluated(DeclaredCondition("Good", status, reason, message)).conditions
    return found


def evaluated(*conditions: DeclaredCondition, **fields: str) -> EvaluatedStatus:
    return evaluate(DeclaredStatus(fields, conditions), VALUES)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("resource.spec.size", 3),
        ("dependents[?kind == 'Deployment'] | [0].status.readyReplicas", 2),
        (
            "{ready: dependents[0].status.readyReplicas, names: dependents[].metadata.name}",
            {"ready": 2, "names": ["web"]},
        ),
        ("resource.spec.tags", ["a", "b"]),
        ("result.successful", True),
        ("schedule.lastScheduleTime", None),
        ("resource.status.phase", None),
    ],
)
def test_a_field_is_the_value_of_its_expression(expression: str, value: Any) -> None:
    """Numbers, texts, lists and maps keep their types; null removes the field."""
    found = evaluated(field=expression)
    assert found.fields == {"field": value}
    assert found.problems == []


@pytest.mark.parametrize(
    ("expression", "status"),
    [
        ("dependents[0].status.readyReplicas > `0`", "True"),
        ("dependents[0].status.readyReplicas > `2`", "False"),
        ("dependents[0].status.updatedReplicas > `2`", "Unknown"),
        ("resource.spec.tags", "True"),
        ("resource.spec.tags[?@ == 'c']", "False"),
        ("''", "False"),
        ("`0`", "True"),
        ("dependents[0].status.conditions[?type == 'Available'].status | [0]", "False"),
        ("'Unknown'", "Unknown"),
        ("'yes'", "True"),
    ],
)
def test_a_status_is_true_false_or_unknown(expression: str, status: str) -> None:
    """As in JMESPath null, false and empty are not true; statuses of other conditions are kept."""
    assert condition(expression)["status"] == status


def test_a_reason_is_never_empty() -> None:
    """Without a reason, or with a null one, it is the type with a prefix for its status."""
    assert condition("`true`")["reason"] == "Good"
    assert condition("`false`", "result.reason")["reason"] == "NotGood"
    assert condition("result.nothing")["reason"] == "UnknownGood"
    assert condition("`true`", "'PodsReady'", "'All is well'") == {
        "type": "Good",
        "status": "True",
        "reason": "PodsReady",
        "message": "All is well",
    }
    slashed = DeclaredCondition("example.com/Load-Tested", "`true`")
    assert evaluated(slashed).conditions[0]["reason"] == "LoadTested"


@pytest.mark.parametrize(
    ("name", "expression", "error"),
    [
        ("field", "length(resource.status)", "invalid type for value: None"),
        ("field", "&resource", "expected a JSON value, got"),
        ("field", "to_number('nan')", "expected a JSON value, got NaN"),
        ("reason", "'not one'", 'expected a reason in CamelCase, got "not one"'),
        ("reason", "`1`", "expected a reason in CamelCase, got 1"),
        ("message", "`1`", "expected text, got 1; use to_string()"),
        ("status", "length(resource.status)", "invalid type for value: None"),
    ],
)
def test_a_wrong_value_is_a_problem_and_the_rest_is_evaluated(
    name: str, expression: str, error: str
) -> None:
    """The problem has key, expression and cause; the same one is equal at each evaluation."""
    texts = {"status": "`true`", "reason": "'Fine'", "message": "'m'", "field": "`1`"}
    texts[name] = expression
    good = DeclaredCondition("Good", texts["status"], texts["reason"], texts["message"])
    other = DeclaredCondition("Other", "`true`")
    first = evaluated(good, other, field=texts["field"], further="`2`")
    (problem,) = first.problems
    key = "status.fields.field" if name == "field" else f"status.conditions[0].{name}"
    assert problem.key == key
    assert problem.expression == expression
    assert error in problem.error
    assert f"{key}: " in str(problem)
    assert first.fields["further"] == 2
    assert ("field" in first.fields) is (name != "field")
    types = [each["type"] for each in first.conditions]
    assert types == (["Other"] if name == "status" else ["Good", "Other"])
    assert evaluated(good, other, field=texts["field"], further="`2`").problems == [problem]


def test_a_time_changes_with_the_status_only() -> None:
    """Equal conditions are not touched, a new message keeps the time, a new status has its own."""
    first = evaluated(DeclaredCondition("Good", "`true`", None, "'one'"))
    conditions = first.update([{"type": "Other"}], 1, NOW)
    assert conditions[1]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert conditions[1]["observedGeneration"] == 1
    assert first.update(conditions, 1, LATER) == conditions
    second = evaluated(DeclaredCondition("Good", "`true`", None, "'two'"))
    updated = second.update(conditions, 1, LATER)
    assert updated[1]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    turned = evaluated(DeclaredCondition("Good", "`false`", None, "'two'")).update(
        updated, 1, LATER
    )
    assert turned[1]["lastTransitionTime"] == "2026-01-02T04:04:05Z"
    assert "observedGeneration" not in first.update([], 0, NOW)[0]


def test_a_result_has_success_counts_and_failed_task() -> None:
    """Success, a requeue and a failure with its task; a resource that could not be run."""
    assert result_of(RunOutcome(Stats(ok=3, changed=2, reports=1, skipped=1))) == {
        "successful": True,
        "ok": 3,
        "changed": 1,
        "skipped": 1,
        "message": "Last reconciliation succeeded",
        "task": "",
        "reason": "Succeeded",
        "code": None,
    }
    waiting = result_of(RunOutcome(Stats(ok=1), requeue_after=timedelta(seconds=10)))
    assert (waiting["successful"], waiting["message"], waiting["reason"]) == (
        True,
        "the role asked to run again in 10s",
        "RequeueRequested",
    )
    failure = TaskFailure("Copy", "no\nspace", "main.yml:3", "Forbidden", 403)
    failed = result_of(RunOutcome(None, (failure,)))
    assert (failed["reason"], failed["code"]) == ("Forbidden", 403)
    assert failed["message"] == "no; space (task 'Copy' at main.yml:3)"
    assert (failed["successful"], failed["task"], failed["ok"]) == (False, "Copy", 0)
    error = result_of_error("too\ndeep")
    assert (error["message"], error["reason"]) == ("too; deep", "RunFailed")
