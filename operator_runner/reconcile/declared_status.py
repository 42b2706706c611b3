"""Evaluate the status that a watch declares: fields and conditions as expressions. Pure.

An expression that fails, or gives a value that cannot be written, changes nothing: its field or
condition stays as it is, and the others are evaluated all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from operator_runner.config.watches import expressions
from operator_runner.core.model import (
    DeclaredCondition,
    DeclaredStatus,
    Json,
    RunOutcome,
    Stats,
    TaskFailure,
)
from operator_runner.core.texts import truncated
from operator_runner.reconcile.conditions import (
    failure_line,
    observed,
    one_line,
    put_condition,
    waiting_text,
)

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""Source: the pattern of `reason` in metav1.Condition."""
_MAX_REASON = 1024
_MAX_MESSAGE_BYTES = 32768
_STATUSES = ("True", "False", "Unknown")
_SHOWN_BYTES = 120


@dataclass(frozen=True, slots=True)
class InvalidExpression:
    """An expression that failed: its key in watches.yaml, its text, and the error with a hint."""

    key: str
    expression: str
    error: str

    def __str__(self) -> str:
        """Return key, expression and error on one line."""
        return f"{self.key}: {self.error} ({self.expression})"


@dataclass(frozen=True, slots=True)
class EvaluatedStatus:
    """Values of a declared status; a field that is None is removed."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    conditions: Sequence[Json] = ()
    """With type, status, reason and message; without times."""
    problems: Sequence[InvalidExpression] = ()

    def update(self, conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
        """Add the evaluated conditions to the others, for a generation, 0 for none."""
        result = list(conditions)
        for condition in self.conditions:
            result = put_condition(result, condition | observed(generation), now)
        return result

    def without(self, fields: Sequence[str], *, conditions: bool) -> EvaluatedStatus:
        """Return the status without these fields and, unless `conditions`, any condition."""
        kept = {name: value for name, value in self.fields.items() if name not in fields}
        return EvaluatedStatus(kept, self.conditions if conditions else (), self.problems)


def evaluate(declared: DeclaredStatus, values: Json) -> EvaluatedStatus:
    """Evaluate a declared status over `resource`, `dependents`, `schedule` and `result`."""
    evaluator = _Evaluator(values)
    fields: Json = {}
    for name, expression in declared.fields.items():
        evaluator.value(f"status.fields.{name}", expression, _json, fields, name)
    conditions = []
    for number, condition in enumerate(declared.conditions):
        if found := evaluator.condition(f"status.conditions[{number}]", condition):
            conditions.append(found)
    return EvaluatedStatus(fields, conditions, evaluator.problems)


def result_of(outcome: RunOutcome) -> Json:
    """Return what expressions see as `result` of a run."""
    stats = outcome.stats or Stats()
    if not outcome.successful:
        failures = outcome.failures
        message = failure_line(failures, _MAX_MESSAGE_BYTES)
        first = failures[0] if failures else TaskFailure("", "", reason="RunFailed")
    elif (after := outcome.requeue_after) is None:
        message, first = "Last reconciliation succeeded", TaskFailure("", "", reason="Succeeded")
    else:
        first = outcome.awaited or TaskFailure("", "", reason="RequeueRequested")
        message = waiting_text(after, outcome.awaited)
    return {
        "successful": outcome.successful,
        "ok": stats.ok,
        "changed": stats.changes,
        "skipped": stats.skipped,
        "message": message,
        "task": first.task,
        "reason": first.reason,
        "code": first.code,
    }


def result_of_error(message: str) -> Json:
    """Return what expressions see as `result` of a resource that could not be run."""
    failure = TaskFailure("", one_line(message), reason="RunFailed")
    return result_of(RunOutcome(None, (failure,)))


class _Evaluator:
    """Evaluates expressions and collects the problems."""

    def __init__(self, values: Json) -> None:
        self._values = values
        self.problems: list[InvalidExpression] = []

    def value(
        self, key: str, expression: str, check: Callable[[Any], Any], into: Json, name: str
    ) -> None:
        """Put the checked value of an expression into a map, or report a problem."""
        try:
            into[name] = check(expressions.evaluate(expression, self._values))
        except ValueError as error:
            self.problems.append(InvalidExpression(key, expression, str(error)))

    def condition(self, key: str, declared: DeclaredCondition) -> Json | None:
        """Return a condition; None if its status cannot be evaluated."""
        found: Json = {"type": declared.type}
        self.value(f"{key}.status", declared.status, _status, found, "status")
        if "status" not in found:
            return None
        prefix = {"True": "", "False": "Not", "Unknown": "Unknown"}[found["status"]]
        default = prefix + re.sub(r"[^A-Za-z0-9]", "", declared.type.rpartition("/")[2])
        found |= {"reason": default, "message": ""}
        if declared.reason is not None:
            self.value(f"{key}.reason", declared.reason, _reason, found, "reason")
            found["reason"] = found["reason"] or default
        if declared.message is not None:
            self.value(f"{key}.message", declared.message, _message, found, "message")
        return found


def _status(value: Any) -> str:
    """Return True, False or Unknown; such a text, as in conditions of dependents, is kept."""
    if value is None:
        return "Unknown"
    if value in _STATUSES:
        return str(value)
    return "True" if expressions.is_true(value) else "False"


def _reason(value: Any) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or len(value) > _MAX_REASON or not _REASON.fullmatch(value):
        raise ValueError(f"expected a reason in CamelCase, got {_shown(value)}")
    return value


def _message(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return truncated(value, _MAX_MESSAGE_BYTES)
    raise ValueError(f"expected text, got {_shown(value)}; use to_string() or join()")


def _json(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(f"expected a JSON value, got {_shown(value)}") from None
    return value


def _shown(value: Any) -> str:
    return truncated(json.dumps(value, default=lambda other: type(other).__name__), _SHOWN_BYTES)
