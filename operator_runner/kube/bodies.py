"""Request bodies in the forms that clients send: JSON, YAML and protobuf. Pure.

What cannot be read is passed on as it is: the API server has the better error message.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml

from operator_runner.kube import protobuf
from operator_runner.kube.ownership import Claim
from operator_runner.model import Json

PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON = frozenset({"", "application/json"})
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_CBOR = frozenset({"application/cbor", "application/apply-patch+cbor"})
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.CSafeLoader):
    """YAML as the API server reads it: a date stays the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def media_type(content_type: str) -> str:
    """Return the type of a Content-Type header without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_foreign(kind: str) -> bool:
    """Whether a media type is one that cannot be read here while its clients know another."""
    return kind in _CBOR


def add_owner(kind: str, body: bytes, claim: Callable[[Json], Claim]) -> bytes:
    """Return `body` with what `claim` asks for in its metadata; unchanged if it asks for nothing.

    `kind` is the media type, `claim` gets the object as far as it can be read.
    """
    if kind == PROTOBUF:
        return _add_to_protobuf(body, claim)
    content = _decode(kind, body)
    if not isinstance(content, dict) or not (wanted := claim(content)):
        return body
    try:
        _add(content, wanted)
        # JSON is YAML too, so the Content-Type stays true.
        return json.dumps(content, ensure_ascii=False).encode(errors="surrogatepass")
    except (TypeError, ValueError):
        # Metadata of a wrong shape; or a YAML set, binary or loop, which JSON cannot hold.
        return body


def is_dry_run(kind: str, body: bytes) -> bool:
    """Whether DeleteOptions ask for a dry run."""
    if kind == PROTOBUF:
        try:
            return protobuf.is_dry_run(body)
        except ValueError:
            return False
    content = _decode(kind, body)
    return isinstance(content, dict) and bool(content.get("dryRun"))


def _add_to_protobuf(body: bytes, claim: Callable[[Json], Claim]) -> bytes:
    try:
        wanted = claim(protobuf.view(body))
    except ValueError:
        return body
    return protobuf.add(body, wanted) if wanted else body


def _decode(kind: str, body: bytes) -> Any:
    if kind not in _JSON and kind not in _YAML:
        return None
    try:
        return json.loads(body)
    except ValueError:
        pass
    if kind not in _YAML:
        return None
    try:
        return yaml.load(body, _Loader)  # noqa: S506 a safe loader
    except (yaml.YAMLError, ValueError):
        return None


def _add(content: Json, claim: Claim) -> None:
    metadata = content["metadata"] = {**(content.get("metadata") or {})}
    if claim.reference:
        metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or []), claim.reference]
    if claim.annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **claim.annotations}
