"""What the status of a resource becomes. Pure: no API, no clock."""

from __future__ import annotations

import re
from typing import Any

CONDITION_FIELDS = frozenset(
    {
        "type",
        "status",
        "reason",
        "message",
        "observedGeneration",
        "lastHeartbeatTime",
        "lastTransitionTime",
    }
)
CONDITION_STATUSES = ("True", "False", "Unknown")

# The pattern that metav1.Condition prescribes for a reason.
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?([+-]\d\d:\d\d|Z)")


def checked_conditions(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conditions as the API wants them; ValueError names the first faulty field.

    YAML reads an unquoted `status: True` as a boolean; it is taken for the word that was meant.
    Fields without a value are left out.
    """
    return [_checked(condition, f"conditions[{i}]") for i, condition in enumerate(conditions)]


def _checked(condition: dict[str, Any], path: str) -> dict[str, Any]:
    given = {field: value for field, value in condition.items() if value is not None}
    if isinstance(given.get("status"), bool):
        given["status"] = str(given["status"])
    unknown = sorted(set(given) - CONDITION_FIELDS)
    if unknown:
        known = ", ".join(sorted(CONDITION_FIELDS))
        raise ValueError(f"{path}.{unknown[0]} is not a field of a condition; these are: {known}")
    for field in ("type", "status"):
        if not given.get(field):
            raise ValueError(f"{path}.{field} must be set")
    if given["status"] not in CONDITION_STATUSES:
        raise ValueError(f"{path}.status must be True, False or Unknown, not {given['status']!r}")
    reason = given.get("reason")
    if reason and not _REASON.fullmatch(str(reason)):
        raise ValueError(f"{path}.reason must be a single CamelCase word, not {reason!r}")
    for field in ("lastHeartbeatTime", "lastTransitionTime"):
        if field in given and not _RFC3339.fullmatch(str(given[field])):
            raise ValueError(f"{path}.{field} must be an RFC 3339 time, not {given[field]!r}")
    if "observedGeneration" in given:
        given["observedGeneration"] = _generation(given["observedGeneration"], path)
    return given


def _generation(value: Any, path: str) -> int:
    # A template that is not a lone expression gives text.
    if isinstance(value, bool) or not str(value).isdecimal():
        raise ValueError(f"{path}.observedGeneration must be a number from 0 up, not {value!r}")
    return int(value)


def merge_conditions(
    old: list[dict[str, Any]], given: list[dict[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return `old` with each given condition in the place of the one of its type, or added last.

    A condition that already says what is given stays as it is, with all its fields.
    """
    merged = list(old)
    for condition in given:
        place = next((i for i, c in enumerate(merged) if c.get("type") == condition["type"]), None)
        if place is None:
            merged.append({"lastTransitionTime": now, **condition})
        elif not contains(merged[place], condition):
            merged[place] = _since(merged[place], condition, now)
    return merged


def replace_conditions(
    old: list[dict[str, Any]], given: list[dict[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return the given conditions alone, each with the time since when it says so."""
    by_type = {condition.get("type"): condition for condition in old}
    return [_since(by_type.get(condition["type"], {}), condition, now) for condition in given]


def _since(old: dict[str, Any], condition: dict[str, Any], now: str) -> dict[str, Any]:
    """Return the condition with lastTransitionTime: as given, else kept while the status is."""
    kept = old.get("lastTransitionTime") if old.get("status") == condition["status"] else None
    return {"lastTransitionTime": kept or now, **condition}


def contains(actual: Any, wanted: Any, *, whole_lists: bool = True) -> bool:
    """Tell whether `actual` already holds all that `wanted` asks for.

    A null asks for absence, as in a merge patch. Lists must be equal; without `whole_lists` it is
    enough that each wanted item is among the actual ones.
    """
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(
            contains(actual.get(key), value, whole_lists=whole_lists)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(actual, list) and not whole_lists:
        return all(item in actual for item in wanted)
    return bool(actual == wanted)
