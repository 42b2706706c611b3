"""Responses and bodies of a dry run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import hdrs, web

from operator_runner.core.model import Json
from operator_runner.kube.api import JSON
from operator_runner.kube.decoding import decode_json, decode_yaml, encode_json
from operator_runner.proxy import protobuf
from operator_runner.proxy.bodies import PROTOBUF
from operator_runner.proxy.headers import response_headers
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.status_errors import StatusError

OK, CREATED = 200, 201
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response: an object of the API, with its status code and headers."""

    code: int
    body: Json
    headers: Any = None
    size: int = 0
    """Approximate bytes of the body as JSON, 0 if it is small."""

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return self.code in _SUCCESS

    def response(self) -> web.Response:
        """Return it as it is sent to the client."""
        headers = {} if self.headers is None else dict(response_headers(self.headers))
        for name in (hdrs.CONTENT_LENGTH, hdrs.CONTENT_ENCODING, hdrs.CONTENT_TYPE):
            headers.pop(name, None)
        return web.Response(
            status=self.code, body=encode_json(self.body), content_type=JSON, headers=headers
        )


def object_of(kind: str, body: bytes) -> Json:
    """Return the object of a body. Raises StatusError for an invalid one."""
    try:
        content = decode_yaml(body) if "yaml" in kind else decode_json(body)
    except ValueError as error:
        raise StatusError(400, f"invalid body: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata") or {}, dict):
        raise StatusError(400, "invalid body: expected an object with metadata")
    return content


def name_of(kind: str, body: bytes) -> str:
    """Return the name of an object that is created, empty if the API server generates it."""
    try:
        content = protobuf.view(body) if kind == PROTOBUF else object_of(kind, body)
        return str((content.get("metadata") or {}).get("name") or "")
    except (StatusError, ValueError):
        return ""


def with_version(body: Json) -> Json:
    """Return an object with a resourceVersion: clients send back the one that they have read."""
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {"resourceVersion": "1", **metadata}}


def not_found(info: RequestInfo) -> ApiResponse:
    """Return the response about an object that does not exist."""
    group = f"{info.resource}.{info.group}" if info.group else info.resource
    return ApiResponse(404, status_of(404, "NotFound", f'{group} "{info.name}" not found'))


def scale_of(body: Json) -> Json:
    """Return the Scale of an object."""
    replicas = (body.get("spec") or {}).get("replicas", 1)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": body.get("metadata") or {},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas},
    }


def scaled(body: Json, scale: Json) -> Json:
    """Return an object with the replicas of a Scale. Raises ValueError for an invalid one."""
    spec = scale.get("spec") or {}
    if not isinstance(spec, dict):
        raise ValueError("invalid Scale: spec has to be an object")  # noqa: TRY004 (of the client)
    replicas = spec.get("replicas", 0)
    return {**body, "spec": {**(body.get("spec") or {}), "replicas": replicas}}


def selectors_of(request: web.BaseRequest) -> dict[str, str]:
    """Return the selectors in the query of a request."""
    names = ("labelSelector", "fieldSelector")
    return {name: request.query[name] for name in names if name in request.query}


def item_kind(listed: Json) -> str:
    """Return the kind of the items of a list."""
    return str(listed.get("kind", "")).removesuffix("List")


def status_of(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return a Status object of the Kubernetes API."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if reason == "" else "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
