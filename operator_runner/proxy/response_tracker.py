"""What the answers to a run's requests tell: which objects it owns, and what it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from operator_runner.core.bounds import shorten
from operator_runner.core.errors import ApiError
from operator_runner.core.model import GVK, Json, ObjectRef, Watch
from operator_runner.kube.decoding import DecodingError, decode_json
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.offloop import OffLoop
from operator_runner.kube.readiness import Health, health_of
from operator_runner.proxy.bodies import is_quick, media_type
from operator_runner.proxy.grants import Grant
from operator_runner.proxy.ownership import is_owned
from operator_runner.proxy.request_info import RequestInfo

_log = structlog.get_logger(__name__)

LARGEST = 4 * 1024 * 1024
"""Bytes: no object is larger (etcd takes 1.5 MB), so longer bodies are not looked at."""

_JSON = "application/json"

WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
"""HTTP methods that write, and what the API calls them."""


class Observer(Protocol):
    """Wants to know what runs own and write; both methods must return at once."""

    def observed(
        self,
        owner: ObjectRef,
        dependent: ObjectRef,
        metadata: Json,
        watch: Watch,
        health: Health,
    ) -> None:
        """Take note of an object that belongs to `owner`, as it was at this moment.

        Whether its status was behind its spec is in `health` where the run has read the object:
        a status is always behind in the answer to the write of a spec.
        """

    def wrote(
        self, owner: ObjectRef, dependent: ObjectRef, resource_version: str, verb: str
    ) -> None:
        """Take note that a run of `owner` has written an object.

        `verb` is create, update, patch or delete. `resource_version` is that of the write;
        empty where the API server does not tell it, as for most deletions.
        """

    def edited_itself(self, owner: ObjectRef, metadata: Json) -> None:
        """Take note that a run wrote the resource that it works for, other than its status."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of a run whose answer is to be looked at."""

    grant: Grant
    method: str
    info: RequestInfo


class Witness:
    """Reads the answers and tells the observer."""

    def __init__(self, observer: Observer, discovery: Discovery, offloop: OffLoop) -> None:
        """`discovery` names kinds where only the resource of a path is known."""
        self._offloop = offloop
        self._observer = observer
        self._discovery = discovery

    async def look(
        self, exchange: Exchange, content_type: str, body: bytes, *, created: bool = False
    ) -> None:
        """Look at the whole body of a successful answer. Never raises: the client gets its answer.

        `created` says that the object of the answer is a new one.
        What is no object in JSON says nothing: tables, protobuf, the answers of other APIs.
        """
        try:
            answer = await self._decode(exchange.grant, media_type(content_type), body)
            if answer is not None:
                if created and not exchange.info.subresource:
                    exchange.grant.own.add(str((answer.get("metadata") or {}).get("uid")))
                await self._tell(exchange, answer)
        except DecodingError as error:
            _log.info(
                "Cannot decode the answer to a run",
                run_id=exchange.grant.run_id,
                resource=exchange.info.resource,
                reason=str(error),
            )
        except ApiError as error:
            _log.warning(
                "The kind of an object is unknown, so its change may run the role once more",
                run_id=exchange.grant.run_id,
                resource=exchange.info.resource,
                reason=str(error),
            )
        except Exception:  # noqa: BLE001 whatever an answer looks like, the client gets it
            _log.exception("The answer to a run was not understood", run_id=exchange.grant.run_id)

    async def _decode(self, grant: Grant, kind: str, body: bytes) -> Json | None:
        """Return the object that a body holds, if any. Raises DecodingError."""
        if kind != _JSON:
            return None
        try:
            if is_quick(kind, len(body)):
                answer = _shortened(body)
            else:
                async with grant.decoding:
                    answer = await self._offloop.call(_shortened, body)
        except json.JSONDecodeError:
            return None
        return answer if isinstance(answer, dict) else None

    async def _tell(self, exchange: Exchange, answer: Json) -> None:
        grant, info = exchange.grant, exchange.info
        metadata = answer.get("metadata") or {}
        dependent = await self._reference(exchange, answer)
        if dependent is None or dependent.gvk in grant.watch.blacklist:
            return
        seen = not info.subresource and exchange.method != "DELETE"
        if seen and is_owned(grant.owner, metadata):
            health = health_of(dependent.gvk, answer)
            if exchange.method != "GET":
                health = replace(health, behind=None)
            self._observer.observed(grant.owner.ref, dependent, metadata, grant.watch, health)
        # What others write in the owner's name is no run's work: the role shall see to it.
        if (verb := WRITES.get(exchange.method)) and grant.run_id:
            version = metadata.get("resourceVersion") or ""
            # Subresources such as eviction and token write nothing of the object itself.
            if version or not info.subresource:
                self._observer.wrote(grant.owner.ref, dependent, version, verb)
            if dependent == grant.owner.ref and seen:
                self._observer.edited_itself(dependent, metadata)

    async def _reference(self, exchange: Exchange, answer: Json) -> ObjectRef | None:
        """Return which object the exchange was about; None if about none.

        A deletion is mostly answered with a Status, and `scale` with a Scale.
        """
        info = exchange.info
        if answer.get("kind") == "Status" or info.subresource:
            deleted = exchange.method == "DELETE" and not info.subresource
            written = bool((answer.get("metadata") or {}).get("resourceVersion"))
            if not info.name or not (deleted or written):
                return None
            resource = await self._discovery.resource_named(info.group, info.version, info.resource)
            return ObjectRef(resource.gvk, info.namespace, info.name)
        if not isinstance(answer.get("metadata"), dict) or "name" not in answer["metadata"]:
            return None
        gvk = GVK.of(answer["apiVersion"], answer["kind"])
        if gvk.group == "meta.k8s.io":
            return None  # a Table or PartialObjectMetadata: about an object, not the object
        return ObjectRef(gvk, answer["metadata"].get("namespace") or "", answer["metadata"]["name"])


def _shortened(body: bytes) -> Any:
    """Return the content of JSON; if that is nested too deep, with what is deepest empty."""
    try:
        return decode_json(body)
    except DecodingError:
        return decode_json(shorten(body, around=0))
