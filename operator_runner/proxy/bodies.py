"""Request bodies in the forms that clients send: JSON, YAML and protobuf. Pure.

What is no JSON is passed on as it is: the API server has the better error message. What the API
server might read but is not read here raises DecodingError, or it would escape its owner.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from operator_runner.core.model import Json
from operator_runner.kube.decoding import DecodingError, decode_json, decode_yaml, encode_json
from operator_runner.proxy import protobuf
from operator_runner.proxy.ownership import Claim

PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON = frozenset({"", "application/json"})
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_CBOR = frozenset({"application/cbor", "application/apply-patch+cbor"})
_PATCHES = frozenset({"application/merge-patch+json", "application/strategic-merge-patch+json"})
APPLY = frozenset({"application/apply-patch+yaml", "application/apply-patch+cbor"})
"""Media types of a server-side apply."""
JSON_PATCH = "application/json-patch+json"
_INLINE_JSON, _INLINE = 64 * 1024, 4 * 1024
"""Bytes that take a millisecond or two at most to decode: in C, and in Python."""


def media_type(content_type: str) -> str:
    """Return the type of a Content-Type header without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_foreign(kind: str) -> bool:
    """Whether a media type is one that cannot be read here while its clients know another."""
    return kind in _CBOR


def is_quick(kind: str, size: int) -> bool:
    """Whether a body of `size` bytes may be decoded in the event loop."""
    return size <= (_INLINE_JSON if kind in _JSON | _PATCHES | {JSON_PATCH} else _INLINE)


def add_owner(kind: str, body: bytes, claim: Callable[[Json], Claim]) -> bytes:
    """Return `body` with what `claim` asks for in its metadata; unchanged if it asks for nothing.

    `kind` is the media type, `claim` gets the object as far as it can be read. Raises
    DecodingError for what is beyond the bounds.
    """
    if kind == PROTOBUF:
        return _add_to_protobuf(body, claim)
    content = _decode(kind, body)
    if not isinstance(content, dict) or not (wanted := claim(content)):
        return body
    try:
        _add(content, wanted)
    except (TypeError, ValueError):
        return body  # metadata of a wrong shape
    # JSON is YAML too, so the Content-Type stays true.
    return encode_json(content)


def add_test(body: bytes, uid: str) -> bytes:
    """Return a JSON patch that is applied to the object with this uid only."""
    content = _decode("application/json", body)
    if not isinstance(content, list):
        return body
    return encode_json([{"op": "test", "path": "/metadata/uid", "value": uid}, *content])


def add_precondition(kind: str, body: bytes, uid: str) -> bytes:
    """Return DeleteOptions that delete the object with this uid only, unless they have a uid.

    Raises DecodingError for what is beyond the bounds.
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
    """Whether DeleteOptions ask for a dry run; what cannot be read does not."""
    if not is_quick(kind, len(body)):
        return False
    try:
        if kind == PROTOBUF:
            return protobuf.is_dry_run(body)
        content = _decode(kind, body)
    except ValueError:
        return False
    return isinstance(content, dict) and bool(content.get("dryRun"))


def _add_to_protobuf(body: bytes, claim: Callable[[Json], Claim]) -> bytes:
    try:
        wanted = claim(protobuf.view(body))
        return protobuf.add(body, wanted) if wanted else body
    except ValueError as error:
        raise DecodingError(f"invalid protobuf: {error}") from error


def _decode(kind: str, body: bytes) -> Any:
    """Return the content; None for bad JSON, and for a media type that is not known."""
    if kind not in _JSON | _YAML | _PATCHES:
        return None
    try:
        return decode_json(body)
    except json.JSONDecodeError:
        return decode_yaml(body) if kind in _YAML else None


def _add(content: Json, claim: Claim) -> None:
    metadata = content["metadata"] = {**(content.get("metadata") or {})}
    if claim.references is not None:
        metadata["ownerReferences"] = [*claim.references]
    if claim.annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **claim.annotations}
    if claim.uid and not metadata.get("uid"):
        metadata["uid"] = claim.uid
    # To the API server 0 is any version.
    if claim.resource_version and metadata.get("resourceVersion") in {None, "", "0"}:
        metadata["resourceVersion"] = claim.resource_version
