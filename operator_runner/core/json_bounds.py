"""Bounds on JSON that comes from the API server: depth, size and values of an object. Pure.

Every user with write access to a watched kind controls the JSON that is decoded here. The API
server accepts 10,000 levels of nesting, Python's own recursion ends near 300; a million brackets
take a second to decode. So an object beyond the bounds is reduced to its outline before it is
decoded: metadata and status. See docs/adr/0021-input-limits.md and 0054-cost-of-an-object.md.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

MAX_DEPTH = 100
"""Levels of maps and lists in an object, the object itself included."""
MAX_SIZE = 3 * 1024**2
"""Bytes of an object in JSON: as much as the API server takes in one request."""
MAX_VALUES = 100_000
"""Values in an object, maps and lists included: decoded in 20 ms. Ordinary objects of 1.5 MB have
half as many."""
_OUTLINE_VALUES = 10_000
"""Values of a field of metadata or status in an outline."""

_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_NO_VALUES = bytes(byte for byte in range(256) if byte not in b'[{,"')
_FIRST_SPAN, _SPAN = 64, 8 * 1024
"""Bytes that are looked at in the first step and at most to find the end of a map or list."""
_MAX_MEMBERS = 1000
"""Members of a map or list that are looked at to describe an object beyond the bounds."""
_AS_STEPS = bytes.maketrans(b"{}", b"[]")
_TOKEN = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""A text without an end is one as well: otherwise each quote in it would be searched to the end."""
_FLAT = re.compile(rb'[\[{](?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+[\]}]', re.DOTALL)
"""A map or list without others in it."""
_SPACE = re.compile(rb"\s*+")
_KEY = re.compile(rb'"((?:[^"\\]++|\\.)*+)"\s*+:\s*+', re.DOTALL)
_SCALAR = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\s,\[\]{}"]++', re.DOTALL)
_SEPARATOR = re.compile(rb"\s*+(?:,\s*+|(?=[\]}]))")
_RARE = 50
"""Bytes for each escape, above which an expression is quicker than two replacements: tenfold."""
_MAX_PAIRS = 20
"""Levels that are counted by removing innermost pairs of brackets; objects rarely have more."""
_PAIRS = [
    b"[]" * 32,
    *(b"[" * pairs + b"]" * pairs for pairs in (64, 64, 64, 16, 16, 16, 4, 4, 4, 1, 1, 1, 1)),
]
"""Brackets that are removed, in this order, to see what is opened or closed beyond them."""
_DIGITS = 4000
"""Python refuses to convert an integer of more digits (sys.get_int_max_str_digits)."""
_PATH_STEPS = 3


class RejectedObject(dict[str, Any]):
    """The outline of an object outside the bounds, see `_outline`."""

    fault: str = ""
    """Message for users: the bound that is exceeded, the path, and a hint."""


def decode(raw: bytes, outer_levels: int = 0) -> Any:
    """Return the JSON value; objects outside the bounds are outlines. Raises ValueError.

    `outer_levels` is the number of levels above each object: 1 in a watch event, 2 in a list. An
    object by itself that exceeds the bounds is a `RejectedObject`.
    """
    if outer_levels:
        return _parse(shorten(raw, outer_levels))
    if (fault := _fault(raw)) is None:
        return _parse(raw)
    value = _parse(_outline(raw))
    if not isinstance(value, dict):
        return value
    rejected = RejectedObject(value)
    rejected.fault = fault
    return rejected


def decode_pruned(raw: bytes, outer_levels: int) -> Any:
    """Return the JSON value, with everything empty that is nested too deep, as runs get lists.

    Raises ValueError.
    """
    levels = MAX_DEPTH + outer_levels
    return _parse(raw if depth(raw) <= levels else prune(raw, levels + 1))


def shorten(raw: bytes, outer_levels: int) -> bytes:
    """Return JSON in which each object outside the bounds is its outline; see `decode`."""
    if not _exceeds(raw, outer_levels):
        return raw
    if not outer_levels:
        return _outline(raw)
    begin = _start(raw)
    return _rebuilt(raw, begin, lambda _, value: shorten(value, outer_levels - 1))


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


def _exceeds(raw: bytes, outer_levels: int = 0, values: int = MAX_VALUES) -> bool:
    return count_values(raw, values) > values or depth(raw) > MAX_DEPTH + outer_levels


def count_values(raw: bytes, bound: int = MAX_VALUES) -> int:
    """Return an upper bound of the number of values, which is close beyond `bound`."""
    if len(raw) <= bound:
        return len(raw)
    found = raw.count(b",") + raw.count(b"[") + raw.count(b"{")
    return found if found <= bound else len(_outside_texts(raw, _NO_VALUES, in_text=False)[0])


def _brackets(raw: bytes, *, in_text: bool) -> tuple[bytes, bool]:
    """Return the brackets outside of texts, all square, and whether `raw` ends within a text."""
    return _outside_texts(raw, _OTHERS, in_text=in_text)


def _outside_texts(raw: bytes, others: bytes, *, in_text: bool) -> tuple[bytes, bool]:
    """Return all bytes outside of texts but `others`, and whether `raw` ends within a text."""
    # Escapes first, so that every quote that is left begins or ends a text.
    if raw.count(b"\\") * _RARE < len(raw):
        plain = _ESCAPE.sub(b"", raw)
    else:
        plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes in a row change nothing for the brackets after them.
    parts = plain.translate(_AS_STEPS, others).replace(b'""', b"").split(b'"')
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


def _outline(raw: bytes) -> bytes:
    """Return an object with its scalars, and of maps and lists those of metadata and status.

    Fields of these with many or deep values are empty, and those after many others are left out.
    Raises ValueError.
    """

    def small(_: bytes, part: bytes) -> bytes:
        return part if _is_small(part) else _empty(part)

    def field(name: bytes, value: bytes) -> bytes:
        if name in {b"metadata", b"status"} and value.startswith(b"{"):
            return _rebuilt(value, 0, small, _MAX_MEMBERS)
        return _empty(value)

    return _rebuilt(raw, _start(raw), field)


def _is_small(part: bytes) -> bool:
    return not _exceeds(part, -2, _OUTLINE_VALUES)


def _empty(value: bytes) -> bytes:
    return {b"{": b"{}", b"[": b"[]"}.get(value[:1], value)


def _rebuilt(
    raw: bytes, begin: int, change: Callable[[bytes, bytes], bytes], most: int | None = None
) -> bytes:
    """Return the value at `begin`; `change` gets name and value of each member of a map or list.

    Members after the first `most` are left out.
    """
    if raw[begin : begin + 1] not in {b"{", b"["}:
        return raw
    members = itertools.islice(_members(raw, begin), most)
    parts = ((name, change(name, raw[at:end])) for name, at, end in members)
    if raw[begin : begin + 1] == b"[":
        return b"[" + b",".join(part for _, part in parts) + b"]"
    return b"{" + b",".join(b'"%b":%b' % part for part in parts) + b"}"


def _members(raw: bytes, begin: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name or index of each member of a map or list, with begin and end of its value."""
    keyed = raw[begin : begin + 1] == b"{"
    at = _after_space(raw, begin + 1)
    for number in itertools.count():
        if raw[at : at + 1] in {b"}", b"]"}:
            return
        name = b"%d" % number
        if keyed:
            if (key := _KEY.match(raw, at)) is None:
                raise ValueError("invalid JSON: expected a key")
            name, at = key[1], key.end()
        end = _end(raw, at)
        yield name, at, end
        if (separator := _SEPARATOR.match(raw, end)) is None:
            raise ValueError("invalid JSON: expected a comma or the end of a map or list")
        at = separator.end()


def _start(raw: bytes) -> int:
    return _after_space(raw, 0)


def _after_space(raw: bytes, at: int) -> int:
    found = _SPACE.match(raw, at)
    return found.end() if found is not None else at


def _end(raw: bytes, begin: int) -> int:
    """Return the end of the value at `begin`, in bounded steps for maps and lists."""
    if raw[begin : begin + 1] not in {b"{", b"["}:
        if (scalar := _SCALAR.match(raw, begin)) is None:
            raise ValueError("invalid JSON: expected a value")
        return scalar.end()
    if (flat := _FLAT.match(raw, begin, begin + _SPAN)) is not None:
        return flat.end()
    level, in_text, at, size = 1, False, begin + 1, _FIRST_SPAN
    while at < len(raw):
        span = raw[at : at + size]
        if len(span) == size:  # the second half of an escape belongs to the first
            span = span[: len(span) - (len(span) - len(span.rstrip(b"\\"))) % 2]
        brackets, ends_in_text = _brackets(span, in_text=in_text)
        if _lowest(brackets, level) <= 0:
            return at + _end_in_span(span, level, in_text=in_text)
        level += brackets.count(b"[") - brackets.count(b"]")
        in_text, at = ends_in_text, at + len(span)
        size = min(size * 2, _SPAN)
    raise ValueError("invalid JSON: a map or list has no end")


def _lowest(brackets: bytes, level: int) -> int:
    """Return a lower bound of the level after each of the brackets, exact where it is not above 0.

    The level before them is above 0.
    """
    if (bound := level - brackets.count(b"]")) > 0:
        return bound
    # What is opened and closed leads to no lower level; without it few brackets are left.
    for pairs in _PAIRS:
        brackets = brackets.replace(pairs, b"")
    return min(_levels(brackets, level))


def _end_in_span(span: bytes, level: int, *, in_text: bool) -> int:
    for token in _TOKEN.finditer(span):
        match token[0]:
            case b'"':
                in_text = not in_text
            case b"{" | b"[" if not in_text:
                level += 1
            case b"}" | b"]" if not in_text:
                level -= 1
                if not level:
                    return token.end()
    raise AssertionError("the span has no end")


def _fault(raw: bytes) -> str | None:
    """Return the bound that an object exceeds, for display; None within the bounds."""
    if (found := count_values(raw)) > MAX_VALUES:
        return (
            f"The resource has {found} values, most of them in {_largest(raw, _values_in)}; at "
            f"most {MAX_VALUES} are supported: keep large content as text in one field, or in "
            "ConfigMaps or volumes that the resource names"
        )
    if depth(raw) > MAX_DEPTH:
        return (
            f"The resource is nested more than {MAX_DEPTH} levels deep at {_deep_path(raw)}: "
            "make it flatter, or keep such content as text in one field"
        )
    if len(raw) > MAX_SIZE:
        return (
            f"The resource is {len(raw)} bytes large, most of it in {_largest(raw, len)}; at most "
            f"{MAX_SIZE} are supported: keep large content in ConfigMaps or volumes that the "
            "resource names"
        )
    return None


def _values_in(raw: bytes) -> int:
    return count_values(raw, 0)


def _fields(raw: bytes) -> dict[bytes, bytes]:
    begin = _start(raw)
    if raw[begin : begin + 1] not in {b"{", b"["}:
        return {}
    members = itertools.islice(_members(raw, begin), _MAX_MEMBERS)
    return {name: raw[value:end] for name, value, end in members}


def _largest(raw: bytes, size: Callable[[bytes], int]) -> str:
    fields = _fields(raw)
    return _text(max(fields, key=lambda name: size(fields[name]), default=b""))


def _deep_path(raw: bytes) -> str:
    """Return the first steps of the path to the deepest part; metadata only if nothing else is."""
    fields = _fields(raw)
    # managedFields follow the rest of the object, five levels deeper.
    rest = {name: part for name, part in fields.items() if name != b"metadata"}
    steps: list[str] = []
    parts = rest if any(depth(part) >= MAX_DEPTH - 5 for part in rest.values()) else fields
    while parts and len(steps) < _PATH_STEPS:
        name = max(parts, key=lambda name: _height(parts[name]))
        steps.append(_text(name))
        parts = _fields(parts[name])
    return ".".join(steps)


def _height(raw: bytes) -> int:
    return max(_levels(_brackets(raw, in_text=False)[0]))


def _text(name: bytes) -> str:
    return name.decode(errors="replace")[:60]


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
