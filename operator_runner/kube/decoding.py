"""Decode JSON and YAML from clients in bounded time, memory and stack. Pure.

Clients are not trusted: 300 bytes of YAML aliases expand to gigabytes, and libyaml's own
composer overflows the C stack at 100,000 brackets, which ends the process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

MAX_DEPTH = 500
"""Levels of nesting in YAML. The limit for JSON is Python's, about 900; built-in kinds have 30."""
_MAX_EVENTS = 200_000
"""Scalars, starts and ends of collections in YAML: decoded in 0.25 s."""
_MAX_NUMBER_CHARS = 300
"""Longer plain scalars are strings, as numbers that a float cannot hold are in Go."""

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(
        ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"), True
    ),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "n", "N"), False),
    **dict.fromkeys(("off", "Off", "OFF"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_BASED = re.compile(r"([-+]?)(?:0x([0-9a-fA-F_]+)|0b([01_]+)|0o?([0-7_]+))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_CORE + name for name in ("null", "bool", "int", "float"))
_TEXT_TAGS = frozenset({"!", _CORE + "str"})
_COLLECTION_TAGS = frozenset({None, "!", _CORE + "map", _CORE + "seq"})
_NOTHING = object()


class DecodingError(ValueError):
    """A body exceeds the bounds or has an unsupported form; the message has a hint."""


def decode_json(body: bytes) -> Any:
    """Return the content of JSON. Raises DecodingError, or json.JSONDecodeError for invalid syntax.

    Invalid UTF-8 is replaced, as in Go.
    """
    try:
        return json.loads(body.decode(errors="replace"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise DecodingError("the JSON is nested too deep; flatten it") from error
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # Python's limit for the digits of an integer
        raise DecodingError(f"the JSON has a number out of range: {error}") from error


def encode_json(content: Any) -> bytes:
    """Return decoded content as JSON. Raises DecodingError for numbers that JSON cannot hold."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode(
            errors="surrogatepass"
        )
    except (ValueError, RecursionError) as error:
        raise DecodingError(f"the body cannot be written as JSON: {error}") from error


def decode_yaml(body: bytes) -> Any:
    """Return the content of one YAML document as the API server decodes it: dates are strings.

    Keys become strings, as in JSON. Raises DecodingError for invalid syntax, aliases, merge
    keys, tags other than those of JSON's types, several documents, and beyond the bounds.
    """
    try:
        return _build(_bounded(yaml.parse(body, Loader=yaml.CSafeLoader)))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise DecodingError(f"invalid YAML: {reason}") from error
    except ValueError as error:
        if isinstance(error, DecodingError):
            raise
        raise DecodingError(f"invalid YAML: {error}") from error


def _bounded(events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    """Yield scalars, starts and ends of collections; raises DecodingError beyond the bounds."""
    depth = documents = 0
    for number, event in enumerate(events):
        if number > _MAX_EVENTS:
            raise DecodingError(f"the YAML has more than {_MAX_EVENTS} parts; send JSON")
        if isinstance(event, yaml.AliasEvent):
            raise DecodingError("YAML aliases are not accepted; write the value out")
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise DecodingError("the YAML has several documents; send one at a time")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise DecodingError(f"the YAML is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.CollectionEndEvent | yaml.NodeEvent):
            yield event


def _build(events: Iterator[yaml.Event]) -> Any:
    """Build the content of one document from its events, without recursion."""
    root: list[Any] = []
    containers: list[Any] = [root]
    keys: list[Any] = [_NOTHING]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            containers.pop()
            keys.pop()
            continue
        into = containers[-1]
        if isinstance(into, dict) and keys[-1] is _NOTHING:
            keys[-1] = _key(event)
            continue
        value = _value(event)
        if isinstance(into, dict):
            into[keys[-1]] = value
            keys[-1] = _NOTHING
        else:
            into.append(value)
        if isinstance(event, yaml.CollectionStartEvent):
            containers.append(value)
            keys.append(_NOTHING)
    return root[0] if root else None


def _value(event: yaml.Event) -> Any:
    """Return the value of a scalar, or an empty collection."""
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    assert isinstance(event, yaml.CollectionStartEvent)
    if event.tag not in _COLLECTION_TAGS:
        raise _bad_tag(event.tag)
    return {} if isinstance(event, yaml.MappingStartEvent) else []


def _key(event: yaml.Event) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise DecodingError("a YAML key is a list or a mapping; use a string")
    if event.value == "<<" and event.implicit[0]:
        raise DecodingError("YAML merge keys are not accepted; write the fields out")
    value = _scalar(event)
    return value if isinstance(value, str) else json.dumps(value)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.tag in _SCALAR_TAGS or (event.tag is None and event.implicit[0]):
        return _resolved(text)
    if event.tag is None or event.tag in _TEXT_TAGS:
        return text
    raise _bad_tag(event.tag)


def _resolved(text: str) -> Any:
    """Return the value of a plain scalar in sigs.k8s.io/yaml, which is go-yaml 2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INFINITE.fullmatch(text):
        raise DecodingError(f"{text} is not a valid JSON number; quote it")
    return text if len(text) > _MAX_NUMBER_CHARS else _number(text)


def _number(text: str) -> int | float | str:
    """Return the number in the text if a float can hold it, else the text."""
    bare = text.replace("_", "")
    if _INTEGER.fullmatch(text):
        return int(bare)
    if (based := _BASED.fullmatch(text)) is not None:
        return _based(text, *based.groups())
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(bare)):
        return number
    return text


def _based(text: str, sign: str, *digits: str | None) -> int | str:
    for base, written in zip((16, 2, 8), digits, strict=True):
        if written and (bare := written.replace("_", "")):
            return int(sign + bare, base)
    return text


def _bad_tag(tag: str | None) -> DecodingError:
    return DecodingError(f"the YAML tag {(tag or '')[:100]} is not accepted; leave it out")


def _refuse_constant(name: str) -> NoReturn:
    raise DecodingError(f"{name} is not a valid JSON number; quote it")
