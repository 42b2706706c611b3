"""Records the permissions that the requests of runs needed; see `--record-requests`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import structlog
from aiohttp import web

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json
from operator_runner.kube.api import is_watch
from operator_runner.kube.decoding import decode_json
from operator_runner.kube.discovery import Discovery
from operator_runner.proxy.permission_log import PermissionLog
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.request_permissions import (
    Permission,
    RequestAttributes,
    Subject,
    impersonation_permissions,
    owners_with_blocked_deletion,
    permissions_for_request,
    permissions_in_body,
)
from operator_runner.proxy.run_tokens import Grant

_log = structlog.get_logger(__name__)
_OK = 200
_UNAUTHORIZED = 401
_MAX_BODY_BYTES = 256 * 1024
"""No Role and no binding is larger."""


class PermissionRecorder:
    """Records requests after their response."""

    def __init__(self, permission_log: PermissionLog, discovery: Discovery) -> None:
        """`discovery` finds the resource of an owner whose deletion is blocked."""
        self._permission_log = permission_log
        self._discovery = discovery

    async def record(
        self,
        request: web.BaseRequest,
        grant: Grant | None,
        body: Any,
        status: int,
        before: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Record the permissions of a request, of any status. Never raises.

        `body` is what was sent: bytes if it was buffered; a stream is ignored. `before` has
        method and path of the requests that the proxy itself made for this one.
        """
        if status == _UNAUTHORIZED:
            return
        try:
            self._permission_log.add(
                [
                    *_permissions_before(before, _subject(grant)),
                    *[
                        permission
                        async for permission in self._permissions(request, grant, body, status)
                    ],
                ]
            )
        except ApiError as error:
            _log.warning("Cannot record a request", path=request.path, error=str(error))
        except Exception:  # noqa: BLE001 the client gets its response
            _log.exception("Internal error while recording a request", path=request.path)

    async def _permissions(
        self, request: web.BaseRequest, grant: Grant | None, body: Any, status: int
    ) -> AsyncIterator[Permission]:
        subject = _subject(grant)
        acting = list(impersonation_permissions(request.headers, subject.by))
        if acting:
            # All else needs the permissions of the impersonated user.
            for permission in acting:
                yield permission
            return
        path = request.raw_path.partition("?")[0]
        info = RequestInfo.parse(path)
        watch = is_watch(request.query)
        for permission in permissions_for_request(
            RequestAttributes(request.method, path, info, watch, status), subject
        ):
            yield permission
        content = _content(body)
        if info is None or content is None:
            return
        for permission in permissions_in_body(info, content, subject):
            yield permission
        for gvk in owners_with_blocked_deletion(content):
            owner = await self._discovery.resource(gvk)
            where = info.namespace if owner.namespaced else ""
            namespace = "own" if where and where == subject.namespace else where
            yield Permission(
                subject.by, gvk.group, f"{owner.plural}/finalizers", namespace, "update"
            )


def _permissions_before(
    requests: Iterable[tuple[str, str]], subject: Subject
) -> Iterator[Permission]:
    for method, path in requests:
        yield from permissions_for_request(
            RequestAttributes(method, path, RequestInfo.parse(path), False, _OK), subject
        )


def _subject(grant: Grant | None) -> Subject:
    if grant is None:
        return Subject()
    ref = grant.owner.ref
    return Subject(ref.gvk.kind_and_group, ref.namespace, ref.name)


def _content(body: Any) -> Json | None:
    """Return the object in a JSON body; None for YAML, protobuf and large bodies."""
    if not isinstance(body, bytes) or len(body) > _MAX_BODY_BYTES:
        return None
    try:
        content: Any = decode_json(body)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
