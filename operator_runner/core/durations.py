"""Durations as Go writes them: `90s`, `1h30m`, `1.5h`. Standard library only.

Kubernetes and ansible-operator take durations in this form alone; the rules and the error texts
are those of Go's time.ParseDuration and Duration.String.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
DURATION_PATTERN = rf"[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)({'|'.join(_NANOSECONDS)}))+)"
"""Regular expression of a duration, for JSON schemas. It does not check the limits."""
DURATION_HINT = "write a duration such as 30s, 10m or 1h30m"
"""End of an error message about an invalid duration."""
_TERM = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_MILLISECOND, _SECOND = 1_000, 1_000_000  # in microseconds
_LIMIT = 1 << 63  # Go counts nanoseconds in an int64
_MAX_QUOTED = 100
"""Maximum of characters of a text in an error."""


def parse_duration(text: str) -> timedelta:
    """Read a Go duration; raises ValueError with Go's own text.

    A timedelta counts microseconds: fractions are cut off, but a nonzero duration remains nonzero.
    """
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return timedelta(0)
    if not rest:
        raise ValueError(f"time: invalid duration {_quote(text)}")
    total = 0
    position = 0
    while position < len(rest):
        match = _TERM.match(rest, position)
        assert match is not None  # every part of the pattern may be empty
        total += _term(match, text)
        position = match.end()
    if total >= _LIMIT + negative:
        raise ValueError(f"time: invalid duration {_quote(text)}")
    microseconds = total // 1000 or (1 if total else 0)
    return timedelta(microseconds=-microseconds if negative else microseconds)


def short_duration(value: timedelta) -> str:
    """Write a duration without units that are zero at its end: `10h`, `1m30s`, `0s`."""
    text = format_duration(value)
    return re.sub(r"(?<=h)0m$", "", re.sub(r"(?<=m)0s$", "", text))


def format_duration(value: timedelta) -> str:
    """Write a duration as Go prints it: `10h0m0s`, `1.5s`, `250ms`, `0s`."""
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    microseconds = abs(microseconds)
    if microseconds == 0:
        return "0s"
    if microseconds < _MILLISECOND:
        return f"{sign}{microseconds}µs"
    if microseconds < _SECOND:
        return f"{sign}{_decimal(microseconds, _MILLISECOND)}ms"
    minutes, rest = divmod(microseconds, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, _SECOND)}s"


def _term(match: re.Match[str], text: str) -> int:
    """Return one number with its unit in nanoseconds."""
    whole, _, fraction, unit = match.groups(default="")
    if not whole and not fraction:
        raise ValueError(f"time: invalid duration {_quote(text)}")
    if not unit:
        raise ValueError(f"time: missing unit in duration {_quote(text)}")
    if unit not in _NANOSECONDS:
        raise ValueError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
    scale = _NANOSECONDS[unit]
    parts = int(fraction or "0") * scale // int(10 ** len(fraction))
    return int(whole or "0") * scale + parts


def _decimal(value: int, scale: int) -> str:
    whole, rest = divmod(value, scale)
    digits = str(rest).zfill(len(str(scale)) - 1).rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def _quote(text: str) -> str:
    short = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
    return json.dumps(short, ensure_ascii=False)
