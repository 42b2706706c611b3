"""Request bodies in the encodings that clients send, and headers to forward. Pure.

Bodies are JSON, YAML and protobuf. Invalid JSON is forwarded unchanged: the API server has the
better error message. A body that the API server might decode and this module does not raises
DecodingError, or its object would be created without an owner.

JSON and YAML are decoded in bounded time, memory and stack. Clients are not trusted: 300 bytes of
YAML aliases expand to gigabytes, and libyaml's own composer overflows the C stack at 100,000
brackets, which ends the process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import yaml
from aiohttp import hdrs
from multidict import CIMultiDict

from operator_runner.core.model import Json
from operator_runner.proxy import protobuf
from operator_runner.proxy.ownership import MetadataPatch

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


PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON = frozenset({"", "application/json"})
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_CBOR = frozenset({"application/cbor", "application/apply-patch+cbor"})
_PATCHES = frozenset({"application/merge-patch+json", "application/strategic-merge-patch+json"})
APPLY = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
"""Media types of a server-side apply."""
JSON_PATCH = "application/json-patch+json"
_INLINE_JSON_BYTES, _INLINE_BYTES = 64 * 1024, 4 * 1024
"""Decoded in a millisecond or two at most: JSON in C, the others in Python."""


def media_type(content_type: str) -> str:
    """Return the type of a Content-Type header without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_unsupported(kind: str) -> bool:
    """Return whether a media type cannot be decoded here; its clients support another one."""
    return kind in _CBOR


def is_quick(kind: str, size: int) -> bool:
    """Return whether a body of `size` bytes may be decoded in the event loop."""
    return size <= (
        _INLINE_JSON_BYTES if kind in _JSON | _PATCHES | {JSON_PATCH} else _INLINE_BYTES
    )


def name_in(kind: str, body: bytes) -> str:
    """Return `metadata.name` of an object, empty without one. Raises DecodingError."""
    if kind == PROTOBUF:
        try:
            content: Any = protobuf.view(body)
        except ValueError as error:
            raise DecodingError(f"invalid protobuf: {error}") from error
    else:
        content = decode(kind, body)
    metadata = content.get("metadata") if isinstance(content, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def add_owner(kind: str, body: bytes, patch_for: Callable[[Json], MetadataPatch]) -> bytes:
    """Apply the patch that `patch_for` returns to the metadata of `body`.

    `kind` is the media type. `patch_for` gets the object, as far as it can be decoded; an empty
    patch leaves `body` unchanged. Raises DecodingError beyond the bounds.
    """
    if kind == PROTOBUF:
        return _add_to_protobuf(body, patch_for)
    content = decode(kind, body)
    if not isinstance(content, dict) or not (patch := patch_for(content)):
        return body
    try:
        _add(content, patch)
    except (TypeError, ValueError):
        return body  # invalid metadata
    # JSON is valid YAML, so the Content-Type remains correct.
    return encode_json(content)


def add_test(body: bytes, uid: str) -> bytes:
    """Return a JSON patch that applies only to the object with this uid."""
    content = decode("application/json", body)
    if not isinstance(content, list):
        return body
    return encode_json([{"op": "test", "path": "/metadata/uid", "value": uid}, *content])


def add_precondition(kind: str, body: bytes, uid: str) -> bytes:
    """Return DeleteOptions with this uid as a precondition, unless they have one.

    Raises DecodingError beyond the bounds.
    """
    if kind == PROTOBUF:
        try:
            return protobuf.add_precondition(body, uid)
        except ValueError as error:
            raise DecodingError(f"invalid protobuf: {error}") from error
    content = decode(kind, body)
    given = content.get("preconditions") or {} if isinstance(content, dict) else None
    if not isinstance(given, dict):
        return body
    return encode_json({**content, "preconditions": {"uid": uid, **given}})


def is_dry_run(kind: str, body: bytes) -> bool:
    """Return whether DeleteOptions request a dry run; False if they cannot be decoded."""
    if not is_quick(kind, len(body)):
        return False
    try:
        if kind == PROTOBUF:
            return protobuf.is_dry_run(body)
        content = decode(kind, body)
    except ValueError:
        return False
    return isinstance(content, dict) and bool(content.get("dryRun"))


def _add_to_protobuf(body: bytes, patch_for: Callable[[Json], MetadataPatch]) -> bytes:
    try:
        patch = patch_for(protobuf.view(body))
        return protobuf.add(body, patch) if patch else body
    except ValueError as error:
        raise DecodingError(f"invalid protobuf: {error}") from error


def decode(kind: str, body: bytes) -> Any:
    """Return the content; None for invalid JSON and for an unknown media type."""
    if kind not in _JSON | _YAML | _PATCHES:
        return None
    try:
        return decode_json(body)
    except json.JSONDecodeError:
        return decode_yaml(body) if kind in _YAML else None


def _add(content: Json, patch: MetadataPatch) -> None:
    metadata = content["metadata"] = {**(content.get("metadata") or {})}
    if patch.references is not None:
        metadata["ownerReferences"] = [*patch.references]
    if patch.annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **patch.annotations}
    if patch.labels:
        given = {**(metadata.get("labels") or {})}
        kept = {key: value for key, value in given.items() if key not in patch.labels}
        added = {key: value for key, value in patch.labels.items() if value is not None}
        metadata["labels"] = kept | added
    if patch.uid and not metadata.get("uid"):
        metadata["uid"] = patch.uid
    # To the API server, 0 means any version.
    if patch.resource_version and metadata.get("resourceVersion") in {None, "", "0"}:
        metadata["resourceVersion"] = patch.resource_version


_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""RFC 9110, 7.6.1: they concern one connection, not the message."""

_TERMINATED_HERE = frozenset({"authorization", "host", "expect"})
"""Request headers that the proxy handles itself. The run's token must never leave this process."""

_BINARY = frozenset({PROTOBUF, "application/cbor"})


def request_headers(headers: Mapping[str, str], *, readable: bool) -> CIMultiDict[str]:
    """Return the headers of the forwarded request.

    `readable` requests a response that can be decoded here, among those that the client accepts:
    JSON in place of a binary encoding, and not compressed.
    """
    passed = _end_to_end(headers)
    for name in _TERMINATED_HERE:
        passed.popall(name, None)
    if readable:
        passed.popall(hdrs.ACCEPT_ENCODING, None)
        if hdrs.ACCEPT in passed:
            passed[hdrs.ACCEPT] = _readable(",".join(passed.getall(hdrs.ACCEPT)))
    return passed


def response_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of the forwarded response."""
    return _end_to_end(headers)


def upgrade_of(headers: Mapping[str, str]) -> str:
    """Return the protocol to upgrade the connection to, such as SPDY/3.1; else empty."""
    tokens = _tokens(headers.get(hdrs.CONNECTION, ""))
    return headers.get(hdrs.UPGRADE, "") if "upgrade" in tokens else ""


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    passed = CIMultiDict(headers)
    dropped = _HOP_BY_HOP | _tokens(",".join(passed.getall(hdrs.CONNECTION, [])))
    for name in dropped:
        passed.popall(name, None)
    return passed


def _tokens(value: str) -> frozenset[str]:
    return frozenset(token.strip().lower() for token in value.split(",") if token.strip())


def _readable(accept: str) -> str:
    ranges = [item.strip() for item in accept.split(",")]
    kept = [item for item in ranges if media_type(item) not in _BINARY]
    json = any(media_type(item) in {"application/json", "*/*"} for item in kept)
    return ", ".join(kept if json else ranges)
