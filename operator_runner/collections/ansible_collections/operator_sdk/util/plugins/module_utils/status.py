"""Compute the new status of a resource. Pure: no API, no clock."""

from __future__ import annotations

import re
from typing import Any

# The pattern that metav1.Condition prescribes for a reason.
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
# RFC 3339 allows a space for the T, and `date --rfc-3339` writes one.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:[+-]\d\d:\d\d|Z))")


class BadConditionError(ValueError):
    """Invalid field of a condition; `at` is its path, as in conditions[0].reason."""

    def __init__(self, text: str, at: str) -> None:
        super().__init__(text)
        self.at = at


def checked_conditions(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conditions in the form of the API; fields without a value are left out.

    Raises BadConditionError for the first invalid field. The argument spec has been checked before.
    """
    return [_checked(condition, f"conditions[{i}]") for i, condition in enumerate(conditions)]


def _checked(condition: dict[str, Any], path: str) -> dict[str, Any]:
    given = {field: value for field, value in condition.items() if value is not None}
    reason = given.get("reason")
    if reason and not _REASON.fullmatch(reason):
        text = "Condition 'reason' must be a single, CamelCase word"
        raise BadConditionError(text, f"{path}.reason: {reason!r}")
    for field in ("lastHeartbeatTime", "lastTransitionTime"):
        if not given.get(field):
            continue
        time = _TIME.fullmatch(given[field])
        if time is None:
            text = f"'{field}' must be an RFC3339 compliant datetime string"
            raise BadConditionError(text, f"{path}.{field}: {given[field]!r}")
        given[field] = f"{time[1]}T{time[2]}"
    if given.get("observedGeneration", 0) < 0:
        text = "Condition 'observedGeneration' must be a number from 0 up"
        raise BadConditionError(text, f"{path}.observedGeneration")
    return given


def are_conditions(value: Any) -> bool:
    """Return whether each item of the list has a type, so that it can be merged by that."""
    return isinstance(value, list) and all(
        isinstance(item, dict) and item.get("type") for item in value
    )


def merge_conditions(
    old: list[dict[str, Any]], given: list[dict[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return `old` with each given condition in the place of the one of its type, or added last.

    An equal condition stays unchanged with all its fields. A different lastTransitionTime does not
    count as a change, because roles give the present time at each run.
    """
    merged = list(old)
    for condition in given:
        place = next((i for i, c in enumerate(merged) if c.get("type") == condition["type"]), None)
        if place is None:
            merged.append({"lastTransitionTime": now, **condition})
        elif not contains(merged[place], _without_time(condition)):
            merged[place] = _since(merged[place], condition, now)
    return merged


def replace_conditions(
    old: list[dict[str, Any]], given: list[dict[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return only the given conditions, with lastTransitionTime."""
    by_type = {each["type"]: each for each in old if isinstance(each.get("type"), str)}
    return [_since(by_type.get(condition["type"], {}), condition, now) for condition in given]


def _without_time(condition: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in condition.items() if key != "lastTransitionTime"}


def _since(old: dict[str, Any], condition: dict[str, Any], now: str) -> dict[str, Any]:
    """Return the condition with lastTransitionTime: as given, else kept while the status is."""
    same = old.get("status") == condition.get("status")
    kept = old.get("lastTransitionTime") if same else None
    return {"lastTransitionTime": kept or now, **condition}


def contains(actual: Any, wanted: Any, *, whole_lists: bool = True) -> bool:
    """Return whether `actual` already contains all of `wanted`.

    A null requires absence, as in a merge patch. Lists must be equal; without `whole_lists` it is
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
