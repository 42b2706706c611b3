"""Write the status that a watch declares together with the conditions of the runner.

Nothing that is declared may keep the runner from reporting: expressions that fail and values that
the CRD refuses are reported by an Event and a log line, and the rest is written without them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog

from operator_runner.core.errors import Conflict, Invalid
from operator_runner.core.model import (
    FORMER_OWNER,
    NOT_OWNED,
    DeclaredStatus,
    EventSpec,
    Json,
    ObjectRef,
    uid_of,
)
from operator_runner.core.object_diff import replacing_patch
from operator_runner.core.resource_states import ResourceState
from operator_runner.core.texts import truncated
from operator_runner.core.timetable import LAST_FIELD, NEXT_FIELD
from operator_runner.reconcile.conditions import read_conditions
from operator_runner.reconcile.declared_status import (
    EvaluatedStatus,
    InvalidExpression,
    evaluate,
    result_of,
    result_of_error,
)
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.observer import ResourceRun
from operator_runner.reconcile.status import ATTEMPTS, ConditionsUpdate, StatusWriter, status_of

_log = structlog.get_logger(__name__)
_ERROR_BYTES = 400
"""Maximum of an error in an Event, whose note has 1,024 bytes."""
_CONDITIONS = "conditions"
_NO_SCHEDULE: Json = {LAST_FIELD: None, NEXT_FIELD: None, "error": None}


@dataclass(frozen=True, slots=True)
class _StatusEnd:
    """What is written at the end of a run, beside what is declared."""

    run: ResourceRun
    result: Json
    """What expressions see as `result`."""
    change: ConditionsUpdate
    finish: ConditionsUpdate
    """Adds the conditions that depend on those that are declared."""
    fields: Mapping[str, Any]


@dataclass(slots=True)
class _DeclaredSlot:
    """Known problems of the declared status of a resource, so that each is reported once."""

    problems: frozenset[InvalidExpression] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)
    """Digests of the values that the CRD refuses, by field; `conditions` for the conditions."""
    missing: frozenset[str] = frozenset()
    """Fields that the API server drops."""
    altered: tuple[str, str] = ("", "")
    """Digests of a declared status, and of what the API server made of it, if that differs."""


class DeclaredStatusWriter:
    """Writes the declared status of the resources of one watch."""

    def __init__(
        self, declared: DeclaredStatus, dependencies: Dependencies, status: StatusWriter
    ) -> None:
        """Write with `status`; the expressions that fail are those of `dependencies`."""
        self._declared = declared
        self._cluster = dependencies.cluster
        self._status = status
        self._deps = dependencies

    async def write(
        self,
        run: ResourceRun,
        change: ConditionsUpdate,
        finish: ConditionsUpdate,
        fields: Mapping[str, Any],
        current: Json | None,
    ) -> Json | None:
        """Write conditions and fields as `StatusWriter.write` does, and the declared ones.

        `finish` adds conditions that depend on the declared ones. `current` is the resource if it
        is up to date, None if it has to be read.
        """
        outcome = run.outcome
        result = result_of_error(run.message) if outcome is None else result_of(outcome)
        end = _StatusEnd(run, result, change, finish, fields)
        for attempt in itertools.count(1):
            body = current if current is not None else await self._cluster.get(run.ref)
            if body is None or uid_of(body) != run.uid:
                return None
            if body is not current:
                self._deps.other_writers.read(body)
            try:
                return await self._write_once(end, body)
            except Conflict:
                # The role may have written what expressions see: evaluate them again.
                if attempt == ATTEMPTS:
                    raise
                current = None
        raise AssertionError

    async def _write_once(self, end: _StatusEnd, body: Json) -> Json | None:
        """Evaluate and write the status of `body`. Raises Conflict if that is not current."""
        known = end.run.state.slot(_DeclaredSlot)
        evaluated = evaluate(self._declared, self._values(end, body))
        await self._report_problems(known, end.run.state, body, evaluated.problems)
        while True:
            accepted = _without_refused(evaluated, known.refused)
            if known.altered == (_digest_of(accepted, end), _present(body, accepted)):
                # Nothing differs but for what the API server has made of it.
                accepted = EvaluatedStatus()
            try:
                written = await self._write(end, body, accepted)
            except Invalid as error:
                if not (accepted.fields or accepted.conditions):
                    raise
                await self._report_refused(known, body, accepted, str(error))
            else:
                break
        if written is not None and (accepted.fields or accepted.conditions):
            await self._compare(known, end, accepted, written)
        return written

    def _values(self, end: _StatusEnd, body: Json) -> Json:
        """Return what expressions see; `resource` is as it is after the run."""
        declared, ref = self._declared, end.run.ref
        return {
            "schedule": _NO_SCHEDULE,
            **end.run.values,
            "resource": body,
            "dependents": self._deps.dependents.objects.of(ref) if declared.uses_dependents else [],
            "readiness": self._readiness_value(end) if declared.uses_readiness else {},
            "result": end.result,
        }

    def _readiness_value(self, end: _StatusEnd) -> Json:
        """Return what expressions see as `readiness`; a run that fails may not have read any."""
        found = asdict(self._deps.dependents.readiness(end.run.ref))
        reason, is_unknown = end.result["reason"], found["ready"] is None
        if reason == FORMER_OWNER or (is_unknown and reason == NOT_OWNED):
            found |= {"ready": False} | {name: end.result[name] for name in ("reason", "message")}
        elif is_unknown and end.result["successful"]:
            found["ready"] = True
        elif is_unknown:
            found |= {name: end.result[name] for name in ("reason", "message")}
        return found

    async def _write(self, end: _StatusEnd, body: Json, declared: EvaluatedStatus) -> Json | None:
        generation = end.run.generation
        return await self._status.write(
            end.run.ref,
            end.run.uid,
            lambda old: end.finish(declared.update(end.change(old), generation, end.run.now)),
            body,
            {**declared.fields, **end.fields},
            attempts=1,
        )

    async def _compare(
        self, known: _DeclaredSlot, end: _StatusEnd, declared: EvaluatedStatus, written: Json
    ) -> None:
        """Notice fields that the API server has dropped, or changed by defaults."""
        status, conditions = status_of(written), read_conditions(written)
        kept = declared.update(conditions, end.run.generation, end.run.now)
        if not replacing_patch(status, declared.fields) and kept == conditions:
            known.altered, known.missing = ("", ""), frozenset()
            return
        known.altered = (_digest_of(declared, end), _present(written, declared))
        fields = declared.fields.items()
        missing = frozenset(n for n, value in fields if value is not None and n not in status)
        for name in sorted(missing - known.missing):
            await self._report(
                written,
                f"status.{name}",
                "the CRD has no such field, so that the API server drops it",
                f"add properties.status.properties.{name} to the schema of the CRD",
            )
        known.missing = missing

    async def _report_refused(
        self, known: _DeclaredSlot, body: Json, declared: EvaluatedStatus, error: str
    ) -> None:
        """Leave out what the API server has named in its error, or everything that is declared."""
        names = [name for name in declared.fields if re.search(rf"\bstatus\.{name}\b", error)]
        has_conditions = bool(declared.conditions) and "status.conditions" in error
        if not names and not has_conditions:
            names, has_conditions = [*declared.fields], bool(declared.conditions)
        for name in names:
            known.refused[name] = _digest(declared.fields[name])
        if has_conditions:
            known.refused[_CONDITIONS] = _digest(declared.conditions)
        await self._report(
            body,
            ", ".join(f"status.{name}" for name in [*names, *([_CONDITIONS] * has_conditions)]),
            truncated(error, _ERROR_BYTES),
            "correct the expression in watches.yaml, or the schema of the CRD",
        )

    async def _report(self, body: Json, where: str, error: str, hint: str) -> None:
        _log.warning(
            "Cannot write a declared status",
            object=str(ObjectRef.of(body)),
            field=where,
            error=error,
            hint=hint,
        )
        event = EventSpec("InvalidStatus", f"{where} is not written: {error}; {hint}", warning=True)
        await self._cluster.emit(body, event)

    async def _report_problems(
        self,
        known: _DeclaredSlot,
        state: ResourceState,
        body: Json,
        problems: Sequence[InvalidExpression],
    ) -> None:
        """Report expressions that fail, each once until its error changes."""
        texts = {each.key: _failure_text(each) for each in problems}
        self._deps.expressions.evaluated(state, texts)
        for problem in problems:
            if problem in known.problems:
                continue
            _log.warning(
                "Invalid expression in watches.yaml",
                key=problem.key,
                expression=problem.expression,
                object=str(ObjectRef.of(body)),
                error=problem.error,
            )
            note = f"watches.yaml: {truncated(str(problem), 2 * _ERROR_BYTES)}"
            await self._cluster.emit(body, EventSpec("InvalidExpression", note, warning=True))
        known.problems = frozenset(problems)


def _failure_text(problem: InvalidExpression) -> str:
    return f"{problem.key} of watches.yaml fails: {problem.expression}: {problem.error}"


def _without_refused(evaluated: EvaluatedStatus, refused: Mapping[str, str]) -> EvaluatedStatus:
    """Return the status without values that the CRD has refused before."""
    fields = [
        name for name, value in evaluated.fields.items() if refused.get(name) == _digest(value)
    ]
    has_conditions = refused.get(_CONDITIONS) != _digest(evaluated.conditions)
    return evaluated.without(fields, conditions=has_conditions)


def _digest_of(evaluated: EvaluatedStatus, end: _StatusEnd) -> str:
    return _digest([evaluated.fields, evaluated.conditions, end.run.generation])


def _present(body: Json, evaluated: EvaluatedStatus) -> str:
    """Return a digest of what a resource has in the place of a declared status."""
    status = status_of(body)
    # A list: the types in the resource may be of any type.
    types = [condition["type"] for condition in evaluated.conditions]
    conditions = [each for each in read_conditions(body) if each.get("type") in types]
    return _digest([{name: status.get(name) for name in evaluated.fields}, conditions])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
