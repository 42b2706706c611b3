"""Format ages as kubectl does. Pure."""

from __future__ import annotations

from datetime import timedelta

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_FORMATS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
)
"""Limits in seconds below which an age is written in a unit, and the unit of its remainder."""


def age(elapsed: timedelta) -> str:
    """Return the age in the column AGE of kubectl: `38s`, `5m3s`, `47m`, `3h20m`, `2d4h`, `9d`.

    See HumanDuration of k8s.io/apimachinery/pkg/util/duration. Below zero (clocks differ): `0s`.
    """
    seconds = max(0, int(elapsed.total_seconds()))
    for limit, size, unit, small_size, small_unit in _FORMATS:
        if seconds < limit:
            rest = seconds % size // small_size if small_size else 0
            return f"{seconds // size}{unit}" + (f"{rest}{small_unit}" if rest else "")
    return f"{seconds // _DAY}d"
