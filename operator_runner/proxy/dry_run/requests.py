"""Requests of a dry run: which ones may be sent, and how they ask for a dry run. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from operator_runner.kube.decoding import decode_json, decode_yaml, encode_json
from operator_runner.proxy.bodies import PROTOBUF
from operator_runner.proxy.ownership import can_be_owned
from operator_runner.proxy.request_info import RequestInfo

_PREVIEWED = frozenset({"", "status", "scale", "ephemeralcontainers", "resize", "approval"})
"""Subresources whose writes the API server can try without storing them."""
_READ = frozenset({"", "status", "scale", "log", "approval", "ephemeralcontainers", "resize"})
"""Subresources that can be read without an effect; `proxy` passes any request on."""
_NOT_PREVIEWED = frozenset(
    {
        ("", "bindings"),
        ("image.openshift.io", "imagestreamimports"),
        ("image.openshift.io", "imagestreammappings"),
        ("project.openshift.io", "projectrequests"),
    }
)
"""Groups and resources whose creation changes other objects, some whatever the query has."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_DRY_RUN = ("dryRun", "All")
_IDENTITY = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
"""Metadata that the API server sets when it creates an object."""


def is_read(method: str) -> bool:
    """Return whether a method reads only."""
    return method in _READS


def refusal(method: str, info: RequestInfo | None, *, upgraded: bool) -> str:
    """Return what the request does that cannot be previewed; empty if it can be sent."""
    reads = is_read(method) and not upgraded
    if info is None:
        return "" if reads else "a write outside of the resource API"
    if not reads and (info.group, info.resource) in _NOT_PREVIEWED:
        return f"a write to {info.resource}"
    allowed = _READ if reads else _PREVIEWED
    return "" if info.subresource in allowed else info.subresource


def is_stored(info: RequestInfo) -> bool:
    """Return whether a write changes an object that can be read later, unlike a review."""
    return can_be_owned(replace(info, subresource=""))


def with_dry_run(query: str) -> str:
    """Return the query of a write with `dryRun=All` as its only value of dryRun."""
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True)]
    return urlencode([*(each for each in kept if each[0] != _DRY_RUN[0]), _DRY_RUN])


def delete_options(kind: str, body: bytes) -> bytes:
    """Return the body of a deletion that asks for a dry run.

    The API server ignores the query of a deletion that has a body.
    """
    given: Any = {}
    if body and kind != PROTOBUF:
        try:
            given = decode_yaml(body) if "yaml" in kind else decode_json(body)
        except ValueError:
            given = {}
    options = given if isinstance(given, dict) else {}
    return encode_json(
        {**options, "kind": "DeleteOptions", "apiVersion": "v1", "dryRun": [_DRY_RUN[1]]}
    )


def as_new(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object as it is sent to create it under this name."""
    metadata = {
        key: value for key, value in (body.get("metadata") or {}).items() if key not in _IDENTITY
    }
    return {**body, "metadata": {**metadata, "name": name}}


def with_identity(body: dict[str, Any], former: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the name, the uid and the age of a former state of it."""
    kept = {
        key: value
        for key, value in (former.get("metadata") or {}).items()
        if key in {"name", "uid", "creationTimestamp", "resourceVersion"}
    }
    return {**body, "metadata": {**(body.get("metadata") or {}), **kept}}
