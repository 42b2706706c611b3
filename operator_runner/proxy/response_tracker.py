"""Track the responses to a run's requests: which objects it owns, and which it wrote.

In lists, values that are nested too deep are emptied: one object that Python cannot decode would
fail every run that lists its kind. A single object stays whole. See docs/adr/0021-input-limits.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from aiohttp import hdrs

from operator_runner.core.async_tasks import WorkerThread
from operator_runner.core.errors import ApiError
from operator_runner.core.json_bounds import MAX_DEPTH, Pruner, height, shorten
from operator_runner.core.model import GVK, FieldChange, Json, ObjectRef, Watch
from operator_runner.kube.api import JSON
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.object_readiness import Health, health_of
from operator_runner.proxy.bodies import DecodingError, decode_json, media_type
from operator_runner.proxy.field_changes import field_changes
from operator_runner.proxy.ownership import (
    PRIMARY_ANNOTATION,
    Owner,
    can_be_owned,
    is_tracked,
    uid_in,
)
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.run_tokens import Grant

_log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 4 * 1024 * 1024
"""No object is larger (etcd stores 1.5 MB); longer bodies are not decoded."""

_JSON = "application/json"

WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
"""HTTP methods that write, with the verbs of the API."""


class ResponseObserver(Protocol):
    """Receives what runs own and write; its methods must not block."""

    def on_dependent(
        self,
        owner: ObjectRef,
        dependent: ObjectRef,
        metadata: Json,
        watch: Watch,
        health: Health,
        *,
        body: Json,
        is_read: bool = True,
    ) -> None:
        """Note the current state of an object that belongs to `owner`, or to its predecessor.

        `body` is the whole object, of which only what is needed may be kept.

        `is_read` is whether the run, or the status that its end writes, has read the object's
        status: in the response to a write of the spec, it is always behind. A declared status
        that uses dependents reads the objects that its run creates.
        """

    def on_write(
        self, owner: ObjectRef, dependent: ObjectRef, resource_version: str, verb: str
    ) -> None:
        """Note that a run of `owner` has written an object.

        `verb` is create, update, patch or delete. `resource_version` is that of the write,
        empty if the API server does not return it, as for most deletions.
        """

    def newest(self, owner: ObjectRef, dependent: ObjectRef, watch: Watch) -> bytes | None:
        """Return an object of `owner` in JSON as it was seen last.

        It is empty if the object is expected to be missing, and None if nothing is known.
        """

    def changed(self, owner: ObjectRef, changes: Sequence[FieldChange]) -> None:
        """Note the fields that a write of `owner`'s run has changed, one at least.

        Writes of objects that the run has not read before, and of subresources, are not noted.
        """

    def on_own_write(self, owner: ObjectRef, metadata: Json) -> None:
        """Note that a run has written its own owner, other than the status."""


@dataclass(frozen=True, slots=True)
class TrackedRequest:
    """A request of a run whose response is tracked."""

    grant: Grant
    method: str
    info: RequestInfo

    @property
    def is_list(self) -> bool:
        """Whether it reads a collection."""
        return self.method == "GET" and not self.info.name

    def note_read(self, metadata: Json) -> None:
        """Keep the metadata of the object that was read, empty if it is missing."""
        if self.method == "GET" and self.info.name:
            self.grant.last_read.clear()
            self.grant.last_read[self.info.object_path] = metadata


class ResponseTracker:
    """Decodes responses and reports them to the observer."""

    def __init__(
        self, observer: ResponseObserver, discovery: Discovery, worker_thread: WorkerThread
    ) -> None:
        """`discovery` finds the kind where only the resource of a path is known."""
        self._worker_thread = worker_thread
        self._observer = observer
        self._discovery = discovery

    async def newest(self, tracked: TrackedRequest) -> bytes | None:
        """Return the object of a read as it was seen last, and track it; None if it is not known.

        It is empty if the object should be missing. It may have changed since: only a write with
        its resourceVersion, or with that of a missing object, shows that.
        """
        info = tracked.info
        if tracked.method != "GET" or not info.name:
            return None
        try:
            kind = await self._discovery.resource_named(info.group, info.version, info.resource)
        except ApiError:
            return None  # the request is forwarded, and the API server reports the error
        ref = ObjectRef(kind.gvk, info.namespace, info.name)
        grant = tracked.grant
        body = self._observer.newest(grant.owner.ref, ref, grant.watch)
        if body:
            await self.track(tracked, _JSON, body)
        elif body is not None:
            tracked.note_read({})
        return body

    async def track(
        self, tracked: TrackedRequest, content_type: str, body: bytes, *, created: bool = False
    ) -> None:
        """Track the body of a successful response. Never raises: the client gets the response.

        `created` is True if the object of the response is new. Responses other than objects and
        lists in JSON are ignored: tables, protobuf, other APIs.
        """
        if tracked.is_list and not _names_owner(body, tracked.grant.owner):
            return  # not worth decoding
        try:
            response = await self._decode(tracked.grant, media_type(content_type), body)
            if response is not None:
                # Reviews are not stored: their uid, if any, is the one that the client has sent.
                if created and can_be_owned(tracked.info):
                    uid = uid_in(response.get("metadata") or {})
                    tracked.grant.owned_uids.update({uid} - {""})
                if tracked.is_list:
                    await self._report_list(tracked, response)
                else:
                    await self._report(tracked, response, body, created=created)
        except DecodingError as error:
            _log.info(
                "Cannot decode a response to a run",
                run_id=tracked.grant.run_id,
                resource=tracked.info.resource,
                error=str(error),
            )
        except ApiError as error:
            _log.warning(
                "Cannot find the kind of an object: its change may run the role once more",
                run_id=tracked.grant.run_id,
                resource=tracked.info.resource,
                error=str(error),
            )
        except Exception:  # noqa: BLE001 the client gets the response
            _log.exception("Internal error while tracking a response", run_id=tracked.grant.run_id)

    async def _decode(self, grant: Grant, kind: str, body: bytes) -> Json | None:
        """Return the object that a body holds, if any. Raises DecodingError."""
        if kind != _JSON:
            return None
        try:
            response = await grant.decoded(
                self._worker_thread, kind, len(body), lambda: _shortened(body)
            )
        except json.JSONDecodeError:
            return None
        return response if isinstance(response, dict) else None

    async def _report(
        self, tracked: TrackedRequest, response: Json, body: bytes, *, created: bool
    ) -> None:
        grant, info = tracked.grant, tracked.info
        metadata = response.get("metadata") or {}
        if uid_in(metadata):
            tracked.note_read(metadata)
        if grant.members is not None and (metadata.get("name") or tracked.method == "DELETE"):
            grant.members.on_response(tracked.method, info, metadata)
        dependent = await self._reference(tracked, response)
        if dependent is None:
            return
        seen = not info.subresource and tracked.method != "DELETE"
        if grant.run_id and seen:
            await self._compare(tracked, dependent, response, body)
        if dependent.gvk in grant.watch.blacklist:
            return
        if seen and is_tracked(grant.owner, metadata):
            status = grant.watch.status
            is_shown = created and status is not None and status.uses_dependents
            self._observer.on_dependent(
                grant.owner.ref,
                dependent,
                metadata,
                grant.watch,
                health_of(dependent.gvk, response),
                body=response,
                is_read=is_shown or tracked.method == "GET",
            )
        # A write of another program on behalf of the owner must still trigger the role.
        if (verb := WRITES.get(tracked.method)) and grant.run_id:
            version = metadata.get("resourceVersion") or ""
            # Subresources such as eviction and token do not write the object.
            if version or not info.subresource:
                # Server-side apply creates objects by PATCH.
                verb = "create" if created and not info.subresource else verb
                self._observer.on_write(grant.owner.ref, dependent, version, verb)
            if dependent == grant.owner.ref and seen:
                self._observer.on_own_write(dependent, metadata)

    async def _report_list(self, tracked: TrackedRequest, response: Json) -> None:
        """Report the objects in a list that concern the owner; they lack their kind."""
        grant, items = tracked.grant, response.get("items")
        kind, api_version = str(response.get("kind")), str(response.get("apiVersion"))
        if not isinstance(items, list) or api_version.startswith("meta.k8s.io/"):
            return  # a Table, or PartialObjectMetadataList: about objects, not the objects
        gvk = GVK.of(api_version, kind.removesuffix("List"))
        if not kind.endswith("List") or gvk in grant.watch.blacklist:
            return
        for item in items:
            metadata = item.get("metadata") if isinstance(item, dict) else None
            if not isinstance(metadata, dict) or not is_tracked(grant.owner, metadata):
                continue
            ref = ObjectRef(gvk, metadata.get("namespace") or "", str(metadata.get("name")))
            body = {"apiVersion": api_version, "kind": gvk.kind, **item}
            health = health_of(gvk, body)
            self._observer.on_dependent(
                grant.owner.ref, ref, metadata, grant.watch, health, body=body
            )

    async def _compare(
        self, tracked: TrackedRequest, ref: ObjectRef, response: Json, body: bytes
    ) -> None:
        """Report the fields that a write has changed since the run last saw the object."""
        grant, version = tracked.grant, (response.get("metadata") or {}).get("resourceVersion")
        before = grant.seen.replace(ref, version, body) if version else None
        if not before or tracked.method == "GET":
            return
        at = time.time()
        old = await self._decode(grant, _JSON, before)
        if old is not None and (changes := field_changes(ref, old, response, at)):
            self._observer.changed(grant.owner.ref, changes)

    async def _reference(self, tracked: TrackedRequest, response: Json) -> ObjectRef | None:
        """Return the object of the request, or None.

        Most deletions return a Status, and `scale` returns a Scale.
        """
        info = tracked.info
        if response.get("kind") == "Status" or info.subresource:
            deleted = tracked.method == "DELETE" and not info.subresource
            written = bool((response.get("metadata") or {}).get("resourceVersion"))
            if not info.name or not (deleted or written):
                return None
            resource = await self._discovery.resource_named(info.group, info.version, info.resource)
            return ObjectRef(resource.gvk, info.namespace, info.name)
        if not isinstance(response.get("metadata"), dict) or "name" not in response["metadata"]:
            return None
        gvk = GVK.of(response["apiVersion"], response["kind"])
        if gvk.group == "meta.k8s.io":
            return None  # a Table or PartialObjectMetadata: about an object, not the object
        return ObjectRef(
            gvk, response["metadata"].get("namespace") or "", response["metadata"]["name"]
        )


def _names_owner(body: bytes, owner: Owner) -> bool:
    """Return whether a response may have an object that names `owner`, or its predecessor."""
    kind, name = (json.dumps(text) for text in (owner.ref.gvk.kind, owner.ref.name))
    # The API server writes an owner reference in this order, and without spaces.
    predecessor = f'"kind":{kind},"name":{name}'
    texts = (owner.uid, owner.annotations[PRIMARY_ANNOTATION], predecessor)
    return any(text.encode() in body for text in texts)


def _shortened(body: bytes) -> Any:
    """Return the content of JSON; if it is nested too deep, the deepest values are empty."""
    try:
        return decode_json(body)
    except DecodingError:
        return decode_json(shorten(body, outer_levels=0))


LEVELS_AROUND_ITEM = 2
"""The list and its `items`."""
_MAX_NAMES = 3
"""Objects that the warning names."""


def pruner_of(tracked: TrackedRequest, headers: Mapping[str, str]) -> Pruner | None:
    """Return a pruner for a list of objects in JSON; None for any other response."""
    is_json = media_type(headers.get(hdrs.CONTENT_TYPE, "")) == JSON
    if not tracked.is_list or not is_json or hdrs.CONTENT_ENCODING in headers:
        return None
    return Pruner(MAX_DEPTH + LEVELS_AROUND_ITEM + 1)


async def pruned_chunks(pruner: Pruner, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a pruned list."""
    async for chunk in chunks:
        if pruned := pruner.feed(chunk):
            yield pruned
    if pruner.rest:
        yield pruner.rest


def deep_objects(body: bytes) -> list[str]:
    """Return the names of objects in a pruned list with emptied values; none for invalid JSON."""
    try:
        return deep_items(json.loads(body))
    except ValueError:
        return []


def deep_items(content: Any) -> list[str]:
    """Return the names of objects in a decoded list with emptied values."""
    items = content.get("items") if isinstance(content, dict) else None
    deep = [item for item in items or () if height(item) > MAX_DEPTH]
    return [_name(item.get("metadata") or {}) for item in deep if isinstance(item, dict)]


def warn_of_pruned(grant: Grant, path: str, names: Sequence[str]) -> None:
    """Log once for each run and path that values were emptied."""
    if path in grant.pruned_paths:
        return
    grant.pruned_paths.add(path)
    _log.warning(
        "Emptied values that are nested too deep",
        run_id=grant.run_id,
        path=path,
        objects=", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else ""),
        hint=f"objects in lists have at most {MAX_DEPTH} levels; flatten or delete deeper ones",
    )


def _name(metadata: Mapping[str, Any]) -> str:
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name)
