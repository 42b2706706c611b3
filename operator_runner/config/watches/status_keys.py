"""The keys `status` and `wakeOn` of an entry: what a status shows, and which changes update it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from operator_runner.config.watches import expressions
from operator_runner.config.watches.document import Location
from operator_runner.config.watches.keys import NAME_PATTERN
from operator_runner.config.watches.map_reader import MapReader, required_gvk
from operator_runner.core.model import DeclaredCondition, DeclaredStatus, WakeOn, Watch

CONDITION_TYPE_PATTERN = (
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
"""Source: the pattern of `type` in metav1.Condition."""
_FAILED: Mapping[str, str] = {
    "status": "!(result.successful)",
    "reason": "result.reason",
    "message": "result.message",
}
"""Expressions of a condition with `failed: true`."""
_READY: Mapping[str, str] = {key: f"readiness.{key}" for key in ("reason", "message")} | {
    "status": "readiness.ready"
}
"""Expressions of a condition with `ready: dependents`."""
_DEPENDENTS = "dependents"
_AVAILABLE = "Available"
_ROOTS = ("resource", _DEPENDENTS, "readiness", "schedule", "result")


def read_wake_on(fields: MapReader, watch: Watch) -> tuple[WakeOn, ...]:
    """Return the chosen fields of an entry; problems are reported.

    `watch` is the entry but for `wakeOn` and `status`.
    """
    watched = {each.gvk for each in watch.references} | {each.gvk for each in watch.triggers}
    found = []
    for entry in fields.each("wakeOn"):
        gvk = required_gvk(entry)
        if gvk not in watched and not watch.watch_dependent_resources:
            entry.warning(
                "kind",
                f"no effect: {gvk.kind} is not one of `references` or `triggers`, and"
                " dependents are not watched; remove it, or watchDependentResources: false",
            )
        elif gvk not in watched and gvk in watch.blacklist:
            entry.warning("kind", f"no effect: {gvk.kind} is in the blacklist; remove it there")
        chosen = entry.expression_list("fields")
        if not chosen:
            entry.problem("fields", "fields must not be empty; add one such as status.phase")
        for expression, location in chosen:
            if expression:
                entry.check(expression, location)
            else:
                entry.report.problem(location, "expected JMESPath such as status.phase")
        found.append(WakeOn(gvk, tuple(dict.fromkeys(text for text, _ in chosen))))
    return tuple(found)


def read_status(fields: MapReader, watch: Watch) -> DeclaredStatus | None:
    """Return the declared status of an entry, None without one; see `read_wake_on`."""
    inner = fields.fields("status")
    if inner is None:
        return None
    if not watch.manage_status and (inner.item("fields") or inner.item("conditions")):
        fields.problem(
            "status", "needs the status to be written; add `manageStatus: true`, or remove it"
        )
    fields_taken, types_taken = _written_by_runner(watch)
    declared = _fields(inner, fields_taken)
    conditions = _conditions(inner, types_taken)
    texts = [*declared.values()]
    for each in conditions:
        texts += [text for text in (each.status, each.reason, each.message) if text is not None]
    uses_dependents, uses_readiness = (
        any(_reads(root, text) for text in texts) for root in (_DEPENDENTS, "readiness")
    )
    if (uses_dependents or uses_readiness) and not watch.watch_dependent_resources:
        fields.problem(
            "status", "dependents are not watched; remove `watchDependentResources: false`"
        )
    return DeclaredStatus(declared, conditions, uses_dependents, uses_readiness)


def read_ready_when(
    fields: MapReader, watch: Watch, status: DeclaredStatus | None
) -> tuple[str, ...]:
    """Return the types of conditions that Ready needs."""
    declared = [each.type for each in status.conditions] if status is not None else []
    if fields.item("readyWhen") is None:
        return tuple(each for each in declared if each == _AVAILABLE) if watch.kstatus else ()
    if not watch.kstatus:
        fields.warning("readyWhen", "no effect without `kstatus: true`; add it, or remove this")
    types = fields.expression_list("readyWhen")
    for type_, location in types:
        if type_ not in declared:
            text = f'"{type_}" is not one of the conditions of `status`; declare it there'
            fields.report.problem(location, text)
    return tuple(type_ for type_, _ in types)


def _written_by_runner(watch: Watch) -> tuple[set[str], set[str]]:
    """Return the fields of the status, and the types of conditions, that the runner writes."""
    fields, types = {"conditions"}, {"Running", "Successful", "Failure", "ExpressionFailure"}
    if watch.kstatus:
        types |= {"Ready", "Reconciling", "Stalled"}
    if watch.schedule is not None:
        fields |= {"lastScheduleTime", "nextScheduleTime"}
        types.add("Scheduled")
    return fields, types


def _fields(inner: MapReader, reserved: set[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, (expression, location) in inner.expressions("fields").items():
        if name == "observedGeneration":
            inner.report.warning(
                location, "no effect: the operator writes observedGeneration itself; remove it"
            )
        elif name in reserved:
            inner.report.problem(
                location, f"{name} is written by the operator itself; choose another field"
            )
        elif not re.fullmatch(NAME_PATTERN, name):
            inner.report.problem(
                location,
                f'"{name}" is not a top-level field; give a map to a field such as members,'
                " as in '{ready: ..., unready: ...}'",
            )
        elif not expression:
            inner.report.problem(location, "expected JMESPath; write it, or remove the field")
        else:
            _check_roots(inner, expression, location)
            found[name] = expression
    return found


def _conditions(inner: MapReader, reserved: set[str]) -> tuple[DeclaredCondition, ...]:
    seen: set[str] = set()
    found = []
    for entry in inner.each("conditions"):
        type_ = entry.text("type")
        if not type_:
            entry.problem("type", "type must not be empty; add one such as `type: Available`")
        elif not re.fullmatch(CONDITION_TYPE_PATTERN, type_):
            entry.problem("type", f'invalid type "{type_}"; write it in CamelCase')
        elif type_ in reserved:
            entry.problem("type", f"{type_} is written by the operator itself; choose another type")
        elif type_ in seen:
            entry.problem("type", f"duplicate condition {type_}; remove one of them")
        seen.add(type_)
        texts = _texts_of(entry)
        for key, text in texts.items():
            if text is not None:
                _check_roots(entry, text, entry.where(key))
        status = texts["status"] or ""
        found.append(DeclaredCondition(type_, status, texts["reason"], texts["message"]))
    return tuple(found)


def _texts_of(entry: MapReader) -> dict[str, str | None]:
    """Return status, reason and message of a condition, those of `ready` or `failed` by default."""
    failed, ready = entry.flag("failed"), entry.text("ready")
    given = {"status": entry.text("status"), "ready": ready, "failed": failed}
    ways = [key for key, way in given.items() if way]
    if not ways:
        entry.problem(
            "status",
            "status must not be empty; add JMESPath that is true or false, `ready: dependents` or"
            " `failed: true`",
        )
    elif len(ways) > 1:
        entry.problem(ways[-1], f"{' and '.join(ways)} exclude each other; keep one of them")
    if ready not in {"", _DEPENDENTS}:
        entry.problem("ready", f'expected {_DEPENDENTS}, got "{ready}"')
    default = _FAILED if failed else _READY if ready else {}
    return {key: entry.text(key) or default.get(key) for key in ("status", "reason", "message")}


def _check_roots(fields: MapReader, expression: str, location: Location) -> None:
    """Check an expression of the status; a field of the resource itself is a common mistake."""
    if not fields.check(expression, location):
        return
    root = re.match(r"(?:metadata|spec|status)(?=[.\[])", expression)
    if root is not None:
        fields.report.problem(
            location, f"{root[0]} is not one of {', '.join(_ROOTS)}; write resource.{expression}"
        )


def _reads(root: str, expression: str) -> bool:
    try:
        read = expressions.top_level_fields(expression)
    except ValueError:
        return False  # reported before
    return read is None or root in read
