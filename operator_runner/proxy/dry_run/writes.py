"""Writes of a dry run: each is sent with `dryRun=All`, and its result is kept.

A write to an object that the run has written before cannot be sent as it is, because the API server
does not have the former result: the whole object is sent, as it would be.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlencode
from uuid import uuid4

from aiohttp import hdrs, web

from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import Json, uid_of
from operator_runner.kube.api import JSON, Api
from operator_runner.proxy import protobuf
from operator_runner.proxy.bodies import APPLY, PROTOBUF, encode_json, name_in
from operator_runner.proxy.dry_run.overlay import DryRun, ObjectKey, OverlayEntry, Selectors
from operator_runner.proxy.dry_run.patches import patched
from operator_runner.proxy.dry_run.sending import (
    CREATED,
    OK,
    ApiResponse,
    Sender,
    as_new,
    delete_options,
    object_of,
    scale_of,
    scaled,
    with_dry_run,
    with_identity,
    with_version,
)
from operator_runner.proxy.ownership import (
    PRIMARY_ANNOTATION,
    PRIMARY_TYPE_ANNOTATION,
    is_stored,
)
from operator_runner.proxy.ownership_enforcement import Admission, WriteRequest
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.status_errors import StatusError, error_of_request, not_found

_T = TypeVar("_T")

_SUFFIX_BYTES = 3
_MAX_NAME = 253
_DELETED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunWrite(WriteRequest):
    """A write of a dry run, with its body."""

    request: web.BaseRequest
    body: bytes

    @property
    def result(self) -> DryRun:
        """The writes of the run so far."""
        assert self.grant.dry_run is not None
        return self.grant.dry_run

    @property
    def key(self) -> ObjectKey:
        """The object of the request."""
        return ObjectKey.of(self.info)


class DryRunWrites:
    """Sends the writes of dry runs."""

    def __init__(self, api: Api, admission: Admission, sender: Sender) -> None:
        """`admission` decides on writes as it does for other runs."""
        self._api = api
        self._sender = sender
        self._admission = admission

    async def answer(self, write: DryRunWrite) -> ApiResponse:
        """Return the response to a write. Raises StatusError if it must not be sent."""
        if not is_stored(write.info):
            return await self._dry(write, write.body)
        if write.request.query.get("dryRun"):
            # A task with `check_mode: true`: no later task sees its result.
            return await self._dry(write, await self._admit(write))
        match write.method:
            case "DELETE":
                return await self._delete(write)
            case "POST" if not write.info.name:
                return await self._create(write)
            case _:
                return await self._update(write)

    async def _create(self, write: DryRunWrite) -> ApiResponse:
        name = await self._edited(write, lambda: name_in(write.media_type, write.body))
        key = ObjectKey.of(write.info, name)
        entry = write.result.entries.get(key) if name else None
        if entry is not None and entry.after is not None:
            message = f'{write.info.resource} "{name}" already exists'
            raise StatusError(409, message, reason="AlreadyExists", own=False)
        body = await self._admit(write)
        if write.result.is_new_namespace(write.info.namespace):
            return self._accept(write, key, await self._object(write, body), CREATED)
        if entry is not None and entry.before is not None:
            return await self._recreate(write, key, await self._object(write, body), CREATED)
        done = await self._dry(write, body)
        if done.is_success:
            created = with_version(done.body)
            key = ObjectKey.of(write.info, str(created["metadata"]["name"]))
            write.result.record(key, None, created)
            return replace(done, body=created)
        return done

    async def _update(self, write: DryRunWrite) -> ApiResponse:
        entry = write.result.entries.get(write.key)
        if write.info.subresource:
            return await self._update_subresource(write, entry)
        if entry is not None:
            return await self._update_written(write, entry)
        before = await self._live(write.info)
        done = await self._dry(write, await self._admit(write))
        if done.is_success:
            write.result.record(write.key, before, with_version(done.body))
        return done

    async def _update_written(self, write: DryRunWrite, entry: OverlayEntry) -> ApiResponse:
        """Write to an object that the run has written before."""
        if entry.after is None:
            if write.media_type not in APPLY:
                raise not_found(write.info)
            body = await self._object(write, await self._admit(write))
            return await self._recreate(write, write.key, body, CREATED)
        current = entry.after
        if write.media_type == PROTOBUF:
            write = await self._as_json(write, entry)
        try:
            desired = await self._decoded(write, lambda: _desired(write, current))
        except ValueError as error:
            raise StatusError(422, str(error), reason="Invalid", own=False) from error
        if write.result.is_new_namespace(write.info.namespace):
            return self._accept(write, write.key, desired, OK)
        if not entry.is_update:
            return await self._recreate(write, write.key, desired, OK)
        return await self._replace(write, entry, desired)

    async def _replace(self, write: DryRunWrite, entry: OverlayEntry, desired: Json) -> ApiResponse:
        """Try to replace an object of the cluster by what the run has made of it."""
        # Controllers may have written the object since; retries would always conflict.
        live = await self._live(write.info)
        if live is None:
            raise not_found(write.info)
        version = live["metadata"]["resourceVersion"]
        metadata = {**desired["metadata"], "resourceVersion": version}
        body = encode_json({**desired, "metadata": metadata})
        done = await self._dry(write, body, method="PUT", kind=JSON)
        if done.is_success:
            write.result.record(write.key, entry.before, done.body)
        return done

    async def _update_subresource(
        self, write: DryRunWrite, entry: OverlayEntry | None
    ) -> ApiResponse:
        """Write status or scale; other subresources change nothing that is compared."""
        if entry is None:
            before = await self._live(write.info)
            done = await self._dry(write, await self._admit(write))
            if done.is_success and before is not None and write.info.subresource == "scale":
                write.result.record(write.key, before, scaled(before, done.body))
            return done
        if entry.after is None:
            raise not_found(write.info)
        current = entry.after
        is_scale = write.info.subresource == "scale"
        if write.media_type == PROTOBUF:
            write = await self._subresource_as_json(write, entry)
        former = scale_of(current) if is_scale else current
        try:
            changed = await self._decoded(write, lambda: _patched_or_sent(write, former))
            after = scaled(current, changed) if is_scale else current
        except ValueError as error:
            raise StatusError(422, str(error), reason="Invalid", own=False) from error
        if is_scale:
            write.result.record(write.key, entry.before, after)
            return ApiResponse(OK, changed)
        after = {**after, "status": changed.get("status") or {}}
        write.result.record(write.key, entry.before, after)
        return ApiResponse(OK, after)

    async def _delete(self, write: DryRunWrite) -> ApiResponse:
        if not write.info.name:
            return await self._delete_collection(write)
        entry = write.result.entries.get(write.key)
        if entry is not None and entry.after is None:
            raise not_found(write.info)
        before = await self._live(write.info) if entry is None else entry.before
        if before is None and entry is not None:
            write.result.record(write.key, None, None)
            return ApiResponse(OK, _DELETED)
        await self._admission.decide(write)
        done = await self._dry(write, write.body)
        if done.is_success:
            write.result.record(write.key, before, None)
        return done

    async def _delete_collection(self, write: DryRunWrite) -> ApiResponse:
        await self._admission.decide(write)
        path = write.request.raw_path.partition("?")[0]
        selectors = dict(write.selectors)
        found = await self._sender.list(write.grant, f"{path}?{urlencode(selectors)}")
        if not found.is_success:
            return found
        listed = found.body
        done = await self._dry(write, write.body)
        if not done.is_success:
            return done
        write.result.reserve(found.size)
        chosen = Selectors(selectors.get("labelSelector", ""), selectors.get("fieldSelector", ""))
        kind = str(listed.get("kind", "")).removesuffix("List")
        kinds = {"apiVersion": listed.get("apiVersion"), "kind": kind}
        live = [{**kinds, **item} for item in listed.get("items") or ()]
        uids = {uid_of(item) for item in live}
        for item in write.result.merge(write.info, live, chosen):
            metadata = item["metadata"]
            key = ObjectKey(
                write.info.group,
                write.info.resource,
                str(metadata.get("namespace") or ""),
                metadata["name"],
            )
            write.result.record(key, item if uid_of(item) in uids else None, None)
        return done

    async def _recreate(
        self, write: DryRunWrite, key: ObjectKey, body: Json, code: int
    ) -> ApiResponse:
        """Try to create an object whose name is taken in the cluster, or that does not exist yet.

        Under another name, so that the API server completes and checks it.
        """
        entry = write.result.entries.get(key)
        is_taken = entry is not None and entry.before is not None
        name = _other_name(key.name) if is_taken else key.name
        path = write.info.collection_path
        sent = encode_json(as_new(body, name))
        done = await self._dry(write, sent, method="POST", kind=JSON, path=path)
        if not done.is_success:
            return done
        former = {"metadata": {"name": key.name}}
        if entry is not None and entry.after is not None:
            former = entry.after
        created = with_version(with_identity(done.body, former))
        write.result.record(key, None, created)
        return replace(done, code=code, body=created)

    def _accept(self, write: DryRunWrite, key: ObjectKey, body: Json, code: int) -> ApiResponse:
        """Take an object of a namespace that does not exist yet as it is sent."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"uid": str(uuid4()), "creationTimestamp": now, **(body.get("metadata") or {})}
        metadata["namespace"] = write.info.namespace
        accepted = with_version({**body, "metadata": metadata})
        write.result.reserve(len(write.body))
        write.result.record(key, None, accepted)
        return ApiResponse(code, accepted, size=len(write.body))

    async def _admit(self, write: DryRunWrite) -> bytes:
        """Return the body with the owner. Raises StatusError if the write would be refused."""
        decision = await self._admission.decide(write)
        edit = decision.edit
        if edit is None:
            return write.body
        return await self._edited(write, lambda: edit(write.body))

    async def _object(self, write: DryRunWrite, body: bytes) -> Json:
        if write.media_type == PROTOBUF:
            return await self._object_of_copy(write, body)
        return await self._decoded(write, lambda: object_of(write.media_type, body))

    async def _as_json(self, write: DryRunWrite, entry: OverlayEntry) -> DryRunWrite:
        """Return a PUT in protobuf as one in JSON: the API server has the schemas, so it decodes.

        Raises StatusError if the API server refuses the object.
        """
        content = await self._put_live(write, entry) or await self._object(write, write.body)
        return replace(write, media_type=JSON, body=encode_json(content))

    async def _put_live(self, write: DryRunWrite, entry: OverlayEntry) -> Json | None:
        """Return what the API server makes of a PUT in protobuf; None if the object is not there.

        Raises StatusError if it refuses the object.
        """
        live = await self._live(write.info) if entry.is_update else None
        if live is None:
            return None
        # Controllers may have written the object since; retries would always conflict.
        version = live["metadata"]["resourceVersion"]
        sent = await self._edited(
            write, lambda: protobuf.with_resource_version(write.body, version)
        )
        return _body_of(await self._dry(write, sent))

    async def _subresource_as_json(self, write: DryRunWrite, entry: OverlayEntry) -> DryRunWrite:
        """Return a PUT of a subresource in protobuf as one in JSON.

        The API server decodes it if the object is in the cluster. Otherwise it has no place to
        write it to: a Scale is decoded here, and a status, which is not compared, is not kept.
        Raises StatusError if the API server refuses it.
        """
        content = await self._put_live(write, entry)
        if content is not None:
            return replace(write, media_type=JSON, body=encode_json(content))
        if write.info.subresource == "scale":
            replicas = await self._edited(write, lambda: protobuf.replicas_of_scale(write.body))
            content = {**scale_of(entry.after or {}), "spec": {"replicas": replicas}}
        else:
            content = entry.after or {}
        return replace(write, media_type=JSON, body=encode_json(content))

    async def _object_of_copy(self, write: DryRunWrite, body: bytes) -> Json:
        """Return the object of a body in protobuf: the API server decodes it for a copy.

        Raises StatusError if the API server refuses the copy.
        """
        info = write.info
        if write.result.is_new_namespace(info.namespace):
            # It does not exist yet.
            info = replace(info, namespace=write.grant.owner.ref.namespace or "default")
        original = await self._edited(write, lambda: name_in(write.media_type, body))
        name = _other_name(original or info.name)
        sent = await self._edited(write, lambda: protobuf.copy(body, name, info.namespace))
        path = info.collection_path
        created = _body_of(await self._dry(write, sent, method="POST", kind=PROTOBUF, path=path))
        content = as_new(created, original)
        if info.namespace:
            content["metadata"]["namespace"] = write.info.namespace
        return content

    async def _edited(self, write: DryRunWrite, edit: Callable[[], _T]) -> _T:
        try:
            return await self._decoded(write, edit)
        except ValueError as error:
            raise StatusError(400, f"invalid body: {error}") from error

    async def _decoded(self, write: DryRunWrite, function: Callable[[], _T]) -> _T:
        """Return what `function` makes of the body, in a thread if that is large."""
        return await write.grant.decoded(
            self._sender.thread, write.media_type, len(write.body), function
        )

    async def _live(self, info: RequestInfo) -> Json | None:
        try:
            return await self._api.request("GET", info.object_path, outer_levels=0)
        except NotFound:
            return None
        except ApiError as error:
            what = f"cannot read {info.object_path}, so its change cannot be shown"
            raise error_of_request(error, what) from error

    async def _dry(
        self, write: DryRunWrite, body: bytes, *, method: str = "", kind: str = "", path: str = ""
    ) -> ApiResponse:
        """Send a write as a dry run; by default, as the client has sent it."""
        if (method or write.method) == "DELETE":
            kind = JSON
            body = await self._decoded(write, lambda: delete_options(write.media_type, write.body))
        own_path, _, query = write.request.raw_path.partition("?")
        target = f"{path or own_path}?{with_dry_run(query)}"
        content_type = kind or write.request.headers.get(hdrs.CONTENT_TYPE, "")
        agent = write.request.headers.get(hdrs.USER_AGENT, "")
        done = await self._sender.send(
            write.grant,
            method or write.method,
            target,
            body,
            content_type=content_type,
            agent=agent,
        )
        if done.is_success:
            write.result.reserve(done.size)
        return done


def _other_name(name: str) -> str:
    """Return a name that is not taken in the cluster."""
    suffix = f"-{secrets.token_hex(_SUFFIX_BYTES)}"
    return f"{name[: _MAX_NAME - len(suffix)]}{suffix}"


def _body_of(done: ApiResponse) -> Json:
    """Return the object of a response. Raises StatusError for an error."""
    if not done.is_success:
        raise StatusError(done.code, str(done.body.get("message") or "invalid object"))
    return done.body


def _desired(write: DryRunWrite, current: Json) -> Json:
    """Return the object that a write to `current` asks for, with its owners."""
    desired = _patched_or_sent(write, current)
    metadata = dict(desired.get("metadata") or {})
    stored = current.get("metadata") or {}
    if not metadata.get("ownerReferences") and stored.get("ownerReferences"):
        metadata["ownerReferences"] = stored["ownerReferences"]
    owner = {
        key: value
        for key, value in (stored.get("annotations") or {}).items()
        if key in {PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION}
    }
    if owner:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **owner}
    return with_identity({**desired, "metadata": metadata}, current)


def _patched_or_sent(write: DryRunWrite, current: Json) -> Json:
    if write.method == "PATCH":
        return patched(current, write.media_type, write.body)
    return object_of(write.media_type, write.body)
