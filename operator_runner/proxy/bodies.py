"""Request bodies in the encodings that clients send, and headers to forward. Pure.

Bodies are JSON, YAML and protobuf. Invalid JSON is forwarded unchanged: the API server has the
better error message. A body that the API server might decode and this module does not raises
DecodingError, or its object would be created without an owner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import hdrs
from multidict import CIMultiDict

from operator_runner.core.model import Json
from operator_runner.kube.decoding import DecodingError, decode_json, decode_yaml, encode_json
from operator_runner.proxy import protobuf
from operator_runner.proxy.ownership import MetadataPatch

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
        content = _decode(kind, body)
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
    content = _decode(kind, body)
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
    content = _decode("application/json", body)
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
    content = _decode(kind, body)
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
        content = _decode(kind, body)
    except ValueError:
        return False
    return isinstance(content, dict) and bool(content.get("dryRun"))


def _add_to_protobuf(body: bytes, patch_for: Callable[[Json], MetadataPatch]) -> bytes:
    try:
        patch = patch_for(protobuf.view(body))
        return protobuf.add(body, patch) if patch else body
    except ValueError as error:
        raise DecodingError(f"invalid protobuf: {error}") from error


def _decode(kind: str, body: bytes) -> Any:
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
