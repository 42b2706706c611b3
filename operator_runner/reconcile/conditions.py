"""Compute the conditions Running, Successful and Failure. Pure: the time is an argument.

Texts and transitions are those of ansible-operator, on which existing projects rely. Conditions
of other types and unknown fields are kept. An equivalent list is returned unchanged, so that a
steady resource costs no write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from operator_runner.core.durations import format_duration
from operator_runner.core.model import FORMER_OWNER, Json, RunOutcome, TaskFailure
from operator_runner.core.texts import truncated

_MAX_MESSAGE_BYTES = 32768
"""Maximum length of the message of a metav1.Condition."""
_LINE_WITHOUT_PUNCTUATION = re.compile(r"(?<![.,:;!?])\n")
_ORIGIN = re.compile(
    r"(?<!\n)\n+Origin: (.+)"
    r"(?:\n\n(?:(?:\.\.\.|[ \t]*\d+(?= |$)|[ \t]+\^|\(source not shown).*(?:\n|\Z))+)?",
    re.MULTILINE,
)
"""The addition of Ansible to an error: `Origin: FILE:LINE:COLUMN`, an empty line, file lines."""
_RUNNING = "Running reconciliation"
_DESELECTED = "Deselected"
SUSPENDED = "Suspended"
_BY_ANNOTATION = "SuspendedByAnnotation"
_WAITING = re.compile(rf"{_RUNNING}; .*run again in \S+\Z", re.DOTALL)
_DELETION_SECONDS = (5, 600)
"""Minimum and maximum time between runs that wait for a deletion."""


def read_conditions(body: Json) -> list[Json]:
    """Return the conditions of a resource, empty if they are missing or invalid."""
    status = body.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if not isinstance(conditions, list):
        return []
    return [condition for condition in conditions if isinstance(condition, dict)]


def conditions_by_type(body: Json) -> dict[str, Json]:
    """Return the conditions of a resource by type, without those whose type is not text."""
    found = read_conditions(body)
    return {each["type"]: each for each in found if isinstance(each.get("type"), str)}


def started(conditions: Sequence[Json], generation: int, now: datetime) -> list[Json]:
    """Return the conditions of a resource whose run begins."""
    result = _turn_false(resumed(conditions), "Successful", generation, now)
    running = new_condition("Running", "True", "Running", _RUNNING, generation)
    return put_condition(result, running, now)


def interrupted(
    conditions: Sequence[Json], reason: str, generation: int, now: datetime
) -> list[Json]:
    """Return the conditions of a resource whose run was ended and is not run again."""
    text = f"The run was ended: {reason}"
    running = new_condition("Running", "False", "Superseded", text, generation)
    return put_condition(list(conditions), running, now)


def suspended(
    conditions: Sequence[Json], message: str, generation: int, now: datetime
) -> list[Json]:
    """Return the conditions of a resource that is not run until its annotation is removed."""
    result = list(conditions)
    if any(map(partial(_is, type="Running", reason="Running"), result)):
        text = "No run starts while suspended"
        running = new_condition("Running", "False", _BY_ANNOTATION, text, generation)
        result = put_condition(result, running, now)
    condition = new_condition(SUSPENDED, "True", _BY_ANNOTATION, message, generation)
    return put_condition(result, condition, now)


def is_suspended(conditions: Sequence[Json]) -> bool:
    """Return whether the conditions include that of `suspended`; a role may have its own."""
    return any(map(_is_suspension, conditions))


def resumed(conditions: Sequence[Json]) -> list[Json]:
    """Return the conditions without that of `suspended`."""
    return [condition for condition in conditions if not _is_suspension(condition)]


def _is(condition: Json, **fields: str) -> bool:
    """Return whether a condition has these fields."""
    return all(condition.get(name) == value for name, value in fields.items())


def _is_suspension(condition: Json) -> bool:
    return _is(condition, type=SUSPENDED, reason=_BY_ANNOTATION)


def finished(
    conditions: Sequence[Json], outcome: RunOutcome, generation: int, now: datetime
) -> list[Json]:
    """Return the conditions of a resource whose run, of this generation, has ended."""
    if not outcome.successful:
        text = failure_text(outcome.failures)
        return failed(conditions, text, generation, now, _recap(outcome))
    if outcome.requeue_after is not None:
        return _waiting(conditions, outcome, outcome.requeue_after, generation, now)
    assert outcome.stats is not None
    # A run with changes is written even if the condition is the same as before.
    has_changes = outcome.stats.changes > 0
    text = "Awaiting next reconciliation"
    running = new_condition("Running", "True", "Successful", text, generation)
    running["ansibleResult"] = _recap(outcome)
    text = "Last reconciliation succeeded"
    successful = new_condition("Successful", "True", "Successful", text, generation)
    result = put_condition(list(conditions), running, now, always=has_changes)
    result = put_condition(result, new_condition("Failure", "False", "", "", generation), now)
    return put_condition(result, successful, now)


def deselected(
    conditions: Sequence[Json], outcome: RunOutcome, generation: int, now: datetime
) -> list[Json]:
    """Return the conditions of a resource whose deselection has succeeded."""
    text = "Resource does not match selector or when"
    running = new_condition("Running", "False", _DESELECTED, text, generation)
    running["ansibleResult"] = _recap(outcome)
    return put_condition(finished(conditions, outcome, generation, now), running, now)


def is_deselected(conditions: Sequence[Json]) -> bool:
    """Return whether the last run was a deselection that succeeded, according to the conditions."""
    return any(map(partial(_is, type="Running", reason=_DESELECTED), conditions))


def _waiting(
    conditions: Sequence[Json],
    outcome: RunOutcome,
    after: timedelta,
    generation: int,
    now: datetime,
) -> list[Json]:
    """Return the conditions of a resource whose role requested a requeue: it has not converged.

    As with ansible-operator Running stays True and Successful is False until a run requests none.
    """
    assert outcome.stats is not None
    text = f"{_RUNNING}; {waiting_text(after, outcome.awaited)}"
    running = new_condition("Running", "True", "Running", text, generation)
    running["ansibleResult"] = _recap(outcome)
    result = _turn_false(list(conditions), "Successful", generation, now)
    if any(condition.get("type") == "Failure" for condition in result):
        result = put_condition(result, new_condition("Failure", "False", "", "", generation), now)
    return put_condition(result, running, now, always=outcome.stats.changes > 0)


def awaiting_deletion(outcome: RunOutcome, body: Json) -> RunOutcome:
    """Return the outcome of a run that met objects of a deleted resource of this name.

    Such a run has not failed: the garbage collector deletes them, unless a finalizer delays that.
    The run is repeated after as long as the resource exists.
    """
    reasons = {failure.reason for failure in outcome.failures}
    if reasons != {FORMER_OWNER} or outcome.stats is None or outcome.finished is None:
        return outcome
    created = datetime.fromisoformat(str(body["metadata"]["creationTimestamp"]))
    age, (least, most) = int((outcome.finished - created).total_seconds()), _DELETION_SECONDS
    return replace(
        outcome,
        failures=(),
        awaited=outcome.failures[0],
        requeue_after=timedelta(seconds=max(least, min(most, age))),
    )


def waiting_text(after: timedelta, awaited: TaskFailure | None = None) -> str:
    """Return the text of a requeue request: `the role asked to run again in 1m30s`."""
    what = "the role asked to" if awaited is None else f"{awaited.message};"
    return f"{what} run again in {format_duration(after)}"


def failed(
    conditions: Sequence[Json],
    message: str,
    generation: int,
    now: datetime,
    recap: Json | None = None,
) -> list[Json]:
    """Return the conditions of a resource whose reconcile failed with this message.

    A retry whose start was not reported, and that fails in the same way, changes nothing.
    """
    text = truncated(message, _MAX_MESSAGE_BYTES)
    failure = new_condition("Failure", "True", "Failed", text, generation)
    if recap is not None:
        failure["ansibleResult"] = recap
    result = _turn_false(resumed(conditions), "Running", generation, now)
    result = put_condition(result, new_condition("Successful", "False", "", "", generation), now)
    return put_condition(result, failure, now, always=result != list(conditions))


def with_reasons(conditions: Sequence[Json]) -> list[Json]:
    """Give each condition a reason, for CRDs whose schema follows metav1.Condition.

    ansible-operator writes empty reasons where a status is False; metav1.Condition requires at
    least one character.
    """
    return [
        condition
        if condition.get("reason") or not condition.get("type")
        else {**condition, "reason": f"Not{condition['type']}"}
        for condition in conditions
    ]


def is_failed(conditions: Sequence[Json], generation: int) -> bool:
    """Return whether the last run, of this generation, failed, according to the conditions."""
    failures = filter(partial(_is, type="Failure", status="True"), conditions)
    return any(each.get("observedGeneration", generation) == generation for each in failures)


def is_successful(conditions: Sequence[Json]) -> bool:
    """Return whether the last run succeeded, according to the conditions."""
    return any(map(partial(_is, type="Successful", status="True"), conditions))


def is_waiting(conditions: Sequence[Json]) -> bool:
    """Return whether the last run requested a requeue, according to the conditions."""
    running = filter(partial(_is, type="Running", status="True"), conditions)
    return any(_WAITING.match(str(each.get("message"))) for each in running)


def failure_text(failures: Sequence[TaskFailure]) -> str:
    """Format failures below each other: message, task and path."""
    return "\n".join(_with_task(failure.message, failure) for failure in failures)


def failure_line(failures: Sequence[TaskFailure], limit: int) -> str:
    """Format failures on one line: message of about `limit` bytes, task and path."""
    return "; ".join(_with_task(_short(failure.message, limit), failure) for failure in failures)


def one_line(message: str) -> str:
    """Return a message on one line; the excerpt of a file is reduced to its position."""
    lines = _ORIGIN.sub(r" (\1)\n", message).splitlines()
    text = "\n".join(line.strip() for line in lines if line.strip())
    return _LINE_WITHOUT_PUNCTUATION.sub("; ", text).replace("\n", " ")


def _short(message: str, limit: int) -> str:
    """Return the message on one line of `limit` bytes, and the position in a file in any case."""
    short = truncated(one_line(message), limit)
    origin = _ORIGIN.search(message)
    return short if origin is None or origin[1] in short else f"{short} ({origin[1]})"


def _with_task(message: str, failure: TaskFailure) -> str:
    if not failure.task:
        return message
    location = f" at {failure.path}" if failure.path else ""
    return f"{message} (task '{failure.task}'{location})"


def _recap(outcome: RunOutcome) -> Json | None:
    if outcome.stats is None or outcome.finished is None:
        return None
    stats = outcome.stats
    return {
        "ok": stats.ok,
        "changed": stats.changed,
        "skipped": stats.skipped,
        "failures": stats.failures,
        "completion": outcome.finished.isoformat(),
    }


def new_condition(type_: str, status: str, reason: str, message: str, generation: int) -> Json:
    """Return a condition without times; `generation` is that of the object that was read."""
    condition: Json = {"type": type_, "status": status, "reason": reason, "message": message}
    return condition | observed(generation)


def observed(generation: int) -> Json:
    """Return the field of a status or condition; empty for kinds without generations (0)."""
    return {"observedGeneration": generation} if generation else {}


def _turn_false(conditions: list[Json], type_: str, generation: int, now: datetime) -> list[Json]:
    """Set a condition to False, keeping reason and message; an absent one is not added."""
    for condition in conditions:
        if condition.get("type") == type_:
            # Another client may have written it, with any types that the schema allows.
            texts = {name: _text(condition.get(name)) for name in ("reason", "message")}
            new = {**condition, **texts, "status": "False"} | observed(generation)
            return put_condition(conditions, new, now)
    return conditions


def put_condition(
    conditions: list[Json], new: Json, now: datetime, *, always: bool = False
) -> list[Json]:
    """Replace the condition of the same type, or add it; a changed one is moved to the end.

    One that only has another generation keeps its place and its other fields.
    """
    old = next((c for c in conditions if c.get("type") == new["type"]), None)
    if old is not None and not always and _is_equivalent(old, new):
        generation = observed(new.get("observedGeneration", 0))
        return [c if c is not old else old | generation for c in conditions]
    kept = old is not None and old.get("status") == new["status"]
    time = old.get("lastTransitionTime") if old is not None and kept else None
    stamped = {**new, "lastTransitionTime": _text(time) or now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return [c for c in conditions if c.get("type") != new["type"]] + [stamped]


def _is_equivalent(old: Json, new: Json) -> bool:
    def compared(condition: Json) -> tuple[Any, ...]:
        reason = condition.get("reason") or ""
        return condition.get("status"), condition.get("message") or "", reason

    # `with_reasons` replaces an empty reason.
    with_reason = {**new, "reason": f"Not{new['type']}"} if not new["reason"] else new
    return compared(old) in (compared(new), compared(with_reason))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
