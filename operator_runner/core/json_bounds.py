"""Bounds on JSON that comes from the API server: how deep and how large an object may be. Pure.

Every user with write access to a watched kind controls the JSON that is decoded here. The API
server accepts 10,000 levels of nesting, Python's own recursion ends near 300. So values nested
deeper than MAX_DEPTH are emptied before decoding. See docs/adr/0021-input-limits.md.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 100
"""Levels of maps and lists in an object, the object itself included."""
MAX_SIZE = 3 * 1024**2
"""Bytes of an object in JSON: as much as the API server takes in one request."""

_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_AS_STEPS = bytes.maketrans(b"{}", b"[]")
_TOKEN = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""A text without an end is one as well: otherwise each quote in it would be searched to the end."""
_RARE = 50
"""Bytes for each escape, above which an expression is quicker than two replacements: tenfold."""
_MAX_PAIRS = 20
"""Levels that are counted by removing innermost pairs of brackets; objects rarely have more."""
_DIGITS = 4000
"""Python refuses to convert an integer of more digits (sys.get_int_max_str_digits)."""
_PATH_STEPS = 3


class RejectedObject(dict[str, Any]):
    """An object outside the bounds: values that are nested too deep are empty."""

    fault: str = ""
    """Message for users: the bound that is exceeded, the path, and a hint."""


def decode(raw: bytes, outer_levels: int = 0) -> Any:
    """Return the JSON value, with everything empty that is nested too deep. Raises ValueError.

    `outer_levels` is the number of levels above each object: 1 in a watch event, 2 in a list. An
    object by itself that exceeds the bounds is a `Refused`.
    """
    if depth(raw) > MAX_DEPTH + outer_levels:
        value = _parse(prune(raw, MAX_DEPTH + outer_levels + 1))
        return value if outer_levels else _refused(value, _too_deep(value))
    value = _parse(raw)
    if len(raw) > MAX_SIZE and not outer_levels:
        return _refused(value, _too_large(value, len(raw)))
    return value


def shorten(raw: bytes, outer_levels: int) -> bytes:
    """Return JSON in which values that are nested too deep are empty; see `decode`."""
    levels = MAX_DEPTH + outer_levels
    return raw if depth(raw) <= levels else prune(raw, levels + 1)


def failure_reason(value: object) -> str:
    """Return why an object cannot be processed, for display; empty if it can."""
    return value.fault if isinstance(value, RejectedObject) else ""


def depth(raw: bytes) -> int:
    """Return an upper bound of the levels of nesting, which is exact beyond MAX_DEPTH."""
    opened = raw.count(b"{") + raw.count(b"[")
    if opened <= MAX_DEPTH:
        return opened
    brackets, _ = _brackets(raw, in_text=False)
    bound = _depth_bound(brackets)
    return bound if bound <= MAX_DEPTH else max(_levels(brackets))


def _brackets(raw: bytes, *, in_text: bool) -> tuple[bytes, bool]:
    """Return the brackets outside of texts, all square, and whether `raw` ends within a text."""
    # Escapes first, so that every quote that is left begins or ends a text.
    if raw.count(b"\\") * _RARE < len(raw):
        plain = _ESCAPE.sub(b"", raw)
    else:
        plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes in a row change nothing for the brackets after them.
    parts = plain.translate(_AS_STEPS, _OTHERS).replace(b'""', b"").split(b'"')
    return b"".join(parts[int(in_text) :: 2]), in_text != (len(parts) % 2 == 0)


def _levels(brackets: bytes, start: int = 0) -> list[int]:
    """Return the level before the first bracket, which is `start`, and after each."""
    # `[` is 91 and `]` is 93: a step down and a step up again.
    return list(itertools.accumulate(map((92).__sub__, brackets), initial=start))


def _depth_bound(brackets: bytes) -> int:
    """Return an upper bound of the levels that the brackets add, which is quick to compute."""
    for pairs in range(_MAX_PAIRS):
        outer = brackets.replace(b"[]", b"")  # one level less
        if len(outer) == len(brackets):
            return pairs + brackets.count(b"[")
        brackets = outer
    return _MAX_PAIRS + brackets.count(b"[")


def values_at(raw: bytes, level: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each map and list at this level, 1 being the outermost."""
    current = begin = 0
    for token in _TEXT_OR_BRACKET.finditer(raw):
        match token[0]:
            case b"{" | b"[":
                current += 1
                if current == level:
                    begin = token.start()
            case b"}" | b"]":
                if current == level:
                    yield begin, token.end()
                current -= 1


def prune(raw: bytes, levels: int) -> bytes:
    """Empty every map and list at this level, 1 being the outermost: the result is valid JSON."""
    pruner = Pruner(levels)
    return pruner.feed(raw) + pruner.rest


class Pruner:
    """Prunes JSON that arrives in chunks, see `prune`."""

    def __init__(self, levels: int) -> None:
        """Begin at the start of a JSON text."""
        self.rest = b""
        """Backslash at the end of the last chunk: half of an escape."""
        self.has_pruned = False
        """Whether a value was emptied."""
        self._levels = levels
        self._level = 0
        self._in_text = False

    def feed(self, chunk: bytes) -> bytes:
        """Return the next part of the pruned text."""
        chunk = self.rest + chunk
        backslashes = len(chunk) - len(chunk.rstrip(b"\\"))
        self.rest = b"\\" * (backslashes % 2)
        chunk = chunk[: len(chunk) - len(self.rest)]
        return chunk if self._passes(chunk) else self._pruned(chunk)

    def _passes(self, chunk: bytes) -> bool:
        """Return whether no level of the chunk is too deep; then it is behind us."""
        brackets, in_text = _brackets(chunk, in_text=self._in_text)
        may_be_deep = self._level + _depth_bound(brackets) >= self._levels
        if may_be_deep and max(_levels(brackets, self._level)) >= self._levels:
            return False
        self._level += brackets.count(b"[") - brackets.count(b"]")
        self._in_text = in_text
        return True

    def _pruned(self, chunk: bytes) -> bytes:
        kept: list[bytes] = []
        start = 0 if self._level < self._levels else len(chunk)
        for token in _TOKEN.finditer(chunk):
            match token[0]:
                case b'"':
                    self._in_text = not self._in_text
                case b"{" | b"[" if not self._in_text:
                    self._level += 1
                    if self._level == self._levels:
                        kept.append(chunk[start : token.end()])
                        start = len(chunk)
                case b"}" | b"]" if not self._in_text:
                    if self._level == self._levels:
                        start = token.start()
                    self._level -= 1
        pruned = b"".join([*kept, chunk[start:]])
        self.has_pruned = self.has_pruned or len(pruned) < len(chunk)
        return pruned


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        # Numbers of thousands of digits are valid JSON.
        return json.loads(raw, parse_int=_integer)


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _DIGITS else float(text)


def _refused(value: Any, fault: str) -> Any:
    if not isinstance(value, dict):
        return value
    refused = RejectedObject(value)
    refused.fault = fault
    return refused


def _too_deep(value: Any) -> str:
    where = ".".join(_deepest(value)) if isinstance(value, dict) else ""
    return (
        f"The resource is nested more than {MAX_DEPTH} levels deep at {where}: "
        "make it flatter, or keep such content as text in one field"
    )


def _too_large(value: Any, size: int) -> str:
    fields = value if isinstance(value, dict) else {}
    largest = max(fields, key=lambda name: len(json.dumps(fields[name])), default="")
    return (
        f"The resource is {size} bytes large, most of it in {largest}; at most {MAX_SIZE} are "
        "supported: keep large content in ConfigMaps or volumes that the resource names"
    )


def _deepest(value: dict[str, Any]) -> list[str]:
    """Return the first steps of the path to the deepest part; metadata only if nothing else is."""
    fields = {name: part for name, part in value.items() if name != "metadata"}
    # managedFields follow the rest of the object, five levels deeper.
    parts = fields if height(fields) > MAX_DEPTH - 5 else value
    steps: list[str] = []
    current: Any = parts
    while isinstance(current, dict | list) and current and len(steps) < _PATH_STEPS:
        named = current.items() if isinstance(current, dict) else enumerate(current)
        name, current = max(named, key=lambda item: height(item[1]))
        steps.append(str(name)[:60])
    return steps


def height(value: Any) -> int:
    """Return the levels of maps and lists in a value, without recursion; 0 for a scalar."""
    levels = 0
    row = [value]
    while row := [part for part in row if isinstance(part, dict | list)]:
        levels += 1
        row = [
            inner for part in row for inner in (part.values() if isinstance(part, dict) else part)
        ]
    return levels
