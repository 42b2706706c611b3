"""Tells the recording which rights a run's request needed; see `--record-requests`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import structlog
from aiohttp import web

from operator_runner.core.errors import ApiError
from operator_runner.core.model import Json
from operator_runner.kube.decoding import decode_json
from operator_runner.kube.discovery import Discovery
from operator_runner.proxy.grants import Grant
from operator_runner.proxy.permission_log import Recording
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.request_permissions import (
    Asked,
    Sender,
    Sent,
    blocked_owners,
    impersonation,
    rights_for,
    rights_in,
)

_log = structlog.get_logger(__name__)
_OK = 200
_UNAUTHORIZED = 401
_LARGEST = 256 * 1024
"""Bytes: no Role and no binding is larger."""


class Recorder:
    """Looks at requests that have been answered."""

    def __init__(self, recording: Recording, discovery: Discovery) -> None:
        """`discovery` names the resource of an owner whose deletion is blocked."""
        self._recording = recording
        self._discovery = discovery

    async def answered(
        self,
        request: web.BaseRequest,
        grant: Grant | None,
        body: Any,
        status: int,
        before: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Record what the request needed, whatever the answer was. Never raises.

        `body` is what was sent, in bytes if it was held; a stream is not looked at. `before` has
        method and path of the requests that the proxy made of its own for this one.
        """
        if status == _UNAUTHORIZED:
            return
        try:
            self._recording.add(
                [
                    *_rights_before(before, _sender(grant)),
                    *[right async for right in self._rights(request, grant, body, status)],
                ]
            )
        except ApiError as error:
            _log.warning("A request was not recorded", path=request.path, reason=str(error))
        except Exception:  # noqa: BLE001 whatever a client sends, it gets its answer
            _log.exception("A request was not recorded", path=request.path)

    async def _rights(
        self, request: web.BaseRequest, grant: Grant | None, body: Any, status: int
    ) -> AsyncIterator[Asked]:
        sender = _sender(grant)
        acting = list(impersonation(request.headers, sender.by))
        if acting:
            # The rest is asked of the other one's rights.
            for right in acting:
                yield right
            return
        path = request.raw_path.partition("?")[0]
        info = RequestInfo.parse(path)
        watch = request.query.get("watch") in {"true", "1"}
        for right in rights_for(Sent(request.method, path, info, watch, status), sender):
            yield right
        content = _content(body)
        if info is None or content is None:
            return
        for right in rights_in(info, content, sender):
            yield right
        for gvk in blocked_owners(content):
            owner = await self._discovery.resource(gvk)
            where = info.namespace if owner.namespaced else ""
            namespace = "own" if where and where == sender.namespace else where
            yield Asked(sender.by, gvk.group, f"{owner.plural}/finalizers", namespace, "update")


def _rights_before(requests: Iterable[tuple[str, str]], sender: Sender) -> Iterator[Asked]:
    for method, path in requests:
        yield from rights_for(Sent(method, path, RequestInfo.parse(path), False, _OK), sender)


def _sender(grant: Grant | None) -> Sender:
    if grant is None:
        return Sender()
    ref = grant.owner.ref
    kind = f"{ref.gvk.kind}.{ref.gvk.group}" if ref.gvk.group else ref.gvk.kind
    return Sender(kind, ref.namespace, ref.name)


def _content(body: Any) -> Json | None:
    """Return a body in JSON as an object; YAML, protobuf and large bodies are passed over."""
    if not isinstance(body, bytes) or len(body) > _LARGEST:
        return None
    try:
        content: Any = decode_json(body)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
