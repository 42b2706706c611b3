"""Answer the requests of a dry run: writes as dry runs, reads from what the run has written.

Nothing but reads and requests with `dryRun=All` reaches the API server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
from aiohttp import hdrs, web

from operator_runner.core.errors import ApiError, NotFound
from operator_runner.core.model import Json
from operator_runner.kube.api import JSON, Api, is_watch
from operator_runner.kube.decoding import decode_json, decode_yaml, encode_json
from operator_runner.proxy.admission import Admission, WriteRequest
from operator_runner.proxy.bodies import APPLY, PROTOBUF, media_type
from operator_runner.proxy.dry_run.overlay import DryRun, Entry, ObjectKey, Selectors, status_of
from operator_runner.proxy.dry_run.patches import patched
from operator_runner.proxy.dry_run.requests import (
    as_new,
    delete_options,
    is_read,
    is_stored,
    refusal,
    with_dry_run,
    with_identity,
)
from operator_runner.proxy.headers import request_headers, response_headers
from operator_runner.proxy.ownership import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError

_OK, _CREATED = 200, 201
_SUCCESS = range(200, 300)
_SUFFIX_BYTES = 3
_MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: an object of the API, with its status code and headers."""

    code: int
    body: Json
    headers: Any = None

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


@dataclass(frozen=True, slots=True)
class _Write:
    """A write of a dry run, with its body."""

    request: web.BaseRequest
    grant: Grant
    dry_run: DryRun
    info: RequestInfo
    kind: str
    body: bytes

    @property
    def key(self) -> ObjectKey:
        return ObjectKey.of(self.info)

    @property
    def method(self) -> str:
        return self.request.method

    def admitted(self) -> WriteRequest:
        """Return the write as the admission decides on it."""
        return WriteRequest(
            self.grant,
            self.method,
            self.info,
            self.kind,
            has_body=bool(self.body),
            field_manager=self.request.query.get("fieldManager", ""),
            dry_run=True,
            selectors=tuple(_selectors(self.request).items()),
        )


class DryRunForwarder:
    """Answers the requests of dry runs."""

    def __init__(self, api: Api, admission: Admission) -> None:
        """`admission` decides on writes as it does for other runs."""
        self._api = api
        self._admission = admission

    async def answer(
        self,
        request: web.BaseRequest,
        grant: Grant,
        info: RequestInfo | None,
        read: Callable[[], Any],
        *,
        upgraded: bool,
    ) -> web.Response | None:
        """Return the response; None for a read that is to be forwarded.

        `read` returns the body. Raises StatusError for requests that cannot be previewed.
        """
        dry_run = grant.dry_run
        assert dry_run is not None
        if what := refusal(request.method, info, upgraded=upgraded):
            path = request.raw_path.partition("?")[0]
            dry_run.refuse(f"{request.method} {path}")
            raise StatusError(403, f"{what} cannot be previewed, so it was not sent: {path}")
        if is_read(request.method):
            found = None if info is None else await self._read(request, dry_run, info)
            return None if found is None else found.response()
        assert info is not None
        kind = media_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
        write = _Write(request, grant, dry_run, info, kind, await read())
        return (await self._answer_write(write)).response()

    # Reads ----------------------------------------------------------------------------

    async def _read(
        self, request: web.BaseRequest, dry_run: DryRun, info: RequestInfo
    ) -> Answer | None:
        if not info.name:
            is_list = not (info.watch or is_watch(request.query))
            if not is_list or not dry_run.touches(info):
                return None
            return await self._list(request, dry_run, info)
        entry = dry_run.get(ObjectKey.of(info))
        if entry is None or info.subresource not in {"", "status", "scale"}:
            return None
        if entry.after is None:
            return _not_found(info)
        if info.subresource == "scale":
            return Answer(_OK, _scale(entry.after))
        return Answer(_OK, entry.after)

    async def _list(self, request: web.BaseRequest, dry_run: DryRun, info: RequestInfo) -> Answer:
        path, _, query = request.raw_path.partition("?")
        found = await self._send("GET", f"{path}?{query}", b"", "")
        if not found.is_success:
            return found
        selectors = Selectors(
            request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        )
        items = dry_run.merge(info, found.body.get("items") or [], selectors)
        return Answer(_OK, {**found.body, "items": items})

    # Writes ---------------------------------------------------------------------------

    async def _answer_write(self, write: _Write) -> Answer:
        if not is_stored(write.info):
            return await self._dry(write, write.body)
        match write.method:
            case "DELETE":
                return await self._delete(write)
            case "POST" if not write.info.name:
                return await self._create(write)
            case _:
                return await self._update(write)

    async def _create(self, write: _Write) -> Answer:
        name = _name(write.kind, write.body)
        key = ObjectKey.of(write.info, name)
        entry = write.dry_run.get(key) if name else None
        if entry is not None and entry.after is not None:
            message = f'{write.info.resource} "{name}" already exists'
            return Answer(409, status_of(409, "AlreadyExists", message))
        body = await self._admit(write)
        if write.dry_run.is_new_namespace(write.info.namespace):
            return self._accept(write, key, _object(write.kind, body), _CREATED)
        if entry is not None and entry.before is not None:
            return await self._recreate(write, key, _object(write.kind, body), _CREATED)
        done = await self._dry(write, body)
        if done.is_success:
            created = _with_version(done.body)
            key = ObjectKey.of(write.info, str(created["metadata"]["name"]))
            write.dry_run.record(key, None, created)
            return Answer(done.code, created, done.headers)
        return done

    async def _update(self, write: _Write) -> Answer:
        entry = write.dry_run.get(write.key)
        if write.info.subresource:
            return await self._update_subresource(write, entry)
        if entry is not None:
            return await self._update_written(write, entry)
        before = await self._live(write.info)
        done = await self._dry(write, await self._admit(write))
        if done.is_success:
            write.dry_run.record(write.key, before, _with_version(done.body))
        return done

    async def _update_written(self, write: _Write, entry: Entry) -> Answer:
        """Write to an object that the run has written before."""
        if entry.after is None:
            if write.kind not in APPLY:
                return _not_found(write.info)
            return await self._recreate(
                write, write.key, _object(write.kind, await self._admit(write)), _CREATED
            )
        try:
            wanted = _wanted(write, entry.after)
        except ValueError as error:
            return Answer(422, status_of(422, "Invalid", str(error)))
        if write.dry_run.is_new_namespace(write.info.namespace):
            return self._accept(write, write.key, wanted, _OK)
        if entry.before is None or _uid(entry.before) != _uid(entry.after):
            return await self._recreate(write, write.key, wanted, _OK)
        # Controllers may have written the object since; a conflict would last for ever.
        live = await self._live(write.info)
        if live is None:
            return _not_found(write.info)
        version = live["metadata"]["resourceVersion"]
        metadata = {**wanted["metadata"], "resourceVersion": version}
        body = encode_json({**wanted, "metadata": metadata})
        done = await self._dry(write, body, method="PUT", kind=JSON)
        if done.is_success:
            write.dry_run.record(write.key, entry.before, done.body)
        return done

    async def _update_subresource(self, write: _Write, entry: Entry | None) -> Answer:
        """Write status or scale; other subresources change nothing that is compared."""
        if entry is None:
            before = await self._live(write.info)
            done = await self._dry(write, await self._admit(write))
            if done.is_success and before is not None and write.info.subresource == "scale":
                write.dry_run.record(write.key, before, _scaled(before, done.body))
            return done
        if entry.after is None:
            return _not_found(write.info)
        try:
            if write.info.subresource == "scale":
                scale = _patched_or_sent(write, _scale(entry.after))
                write.dry_run.record(write.key, entry.before, _scaled(entry.after, scale))
                return Answer(_OK, scale)
            changed = _patched_or_sent(write, entry.after)
        except ValueError as error:
            return Answer(422, status_of(422, "Invalid", str(error)))
        after = {**entry.after, "status": changed.get("status") or {}}
        write.dry_run.record(write.key, entry.before, after)
        return Answer(_OK, after)

    async def _delete(self, write: _Write) -> Answer:
        if not write.info.name:
            return await self._delete_collection(write)
        entry = write.dry_run.get(write.key)
        if entry is not None and entry.after is None:
            return _not_found(write.info)
        before = await self._live(write.info) if entry is None else entry.before
        if before is None and entry is not None:
            write.dry_run.record(write.key, None, None)
            return Answer(_OK, status_of(_OK, "", ""))
        await self._admission.decide(write.admitted())
        done = await self._dry(write, delete_options(write.kind, write.body), kind=JSON)
        if done.is_success:
            write.dry_run.record(write.key, before, None)
        return done

    async def _delete_collection(self, write: _Write) -> Answer:
        await self._admission.decide(write.admitted())
        path = write.request.raw_path.partition("?")[0]
        selectors = _selectors(write.request)
        listed = await self._api.request("GET", path, params=selectors, outer_levels=2)
        done = await self._dry(write, delete_options(write.kind, write.body), kind=JSON)
        if not done.is_success:
            return done
        chosen = Selectors(selectors.get("labelSelector", ""), selectors.get("fieldSelector", ""))
        kinds = {"apiVersion": listed.get("apiVersion"), "kind": _item_kind(listed)}
        live = [{**kinds, **item} for item in listed.get("items") or ()]
        uids = {_uid(item) for item in live}
        for item in write.dry_run.merge(write.info, live, chosen):
            metadata = item["metadata"]
            key = ObjectKey(
                write.info.group,
                write.info.resource,
                str(metadata.get("namespace") or ""),
                metadata["name"],
            )
            write.dry_run.record(key, item if _uid(item) in uids else None, None)
        return done

    async def _recreate(self, write: _Write, key: ObjectKey, body: Json, code: int) -> Answer:
        """Try to create an object whose name is taken in the cluster, or that is not there yet.

        Under another name, so that the API server completes and checks it.
        """
        entry = write.dry_run.get(key)
        is_taken = entry is not None and entry.before is not None
        suffix = f"-{secrets.token_hex(_SUFFIX_BYTES)}" if is_taken else ""
        name = f"{key.name[: _MAX_NAME - len(suffix)]}{suffix}"
        path = write.info.collection_path
        sent = encode_json(as_new(body, name))
        done = await self._dry(write, sent, method="POST", kind=JSON, path=path)
        if not done.is_success:
            return done
        former = {"metadata": {"name": key.name}}
        if entry is not None and entry.after is not None:
            former = entry.after
        created = _with_version(with_identity(done.body, former))
        write.dry_run.record(key, None, created)
        return Answer(code, created, done.headers)

    def _accept(self, write: _Write, key: ObjectKey, body: Json, code: int) -> Answer:
        """Take an object of a namespace that does not exist yet as it is sent."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"uid": str(uuid4()), "creationTimestamp": now, **(body.get("metadata") or {})}
        metadata["namespace"] = write.info.namespace
        accepted = _with_version({**body, "metadata": metadata})
        write.dry_run.record(key, None, accepted)
        return Answer(code, accepted)

    # ----------------------------------------------------------------------------------

    async def _admit(self, write: _Write) -> bytes:
        """Return the body with the owner. Raises StatusError if the write would be refused."""
        decision = await self._admission.decide(write.admitted())
        return write.body if decision.edit is None else decision.edit(write.body)

    async def _live(self, info: RequestInfo) -> Json | None:
        try:
            return await self._api.request("GET", info.object_path, outer_levels=0)
        except NotFound:
            return None
        except ApiError as error:
            what = f"cannot read {info.object_path}, so its change cannot be shown: {error}"
            raise StatusError(403, what) from error

    async def _dry(
        self, write: _Write, body: bytes, *, method: str = "", kind: str = "", path: str = ""
    ) -> Answer:
        """Send a write as a dry run; by default, as the client has sent it."""
        own_path, _, query = write.request.raw_path.partition("?")
        target = f"{path or own_path}?{with_dry_run(query)}"
        content_type = kind or write.request.headers.get(hdrs.CONTENT_TYPE, "")
        headers = request_headers(write.request.headers, readable=True)
        agent = headers.get(hdrs.USER_AGENT, "")
        return await self._send(method or write.method, target, body, content_type, agent)

    async def _send(
        self, method: str, path: str, body: bytes, content_type: str, agent: str = ""
    ) -> Answer:
        connection = self._api.connection
        headers = {hdrs.ACCEPT: JSON}
        if content_type:
            headers[hdrs.CONTENT_TYPE] = content_type
        if agent:
            headers[hdrs.USER_AGENT] = agent
        try:
            async with connection.http.request(
                method, connection.url(path), data=body or None, headers=headers
            ) as response:
                content = await response.read()
                return Answer(response.status, decode_json(content), response.headers)
        except (aiohttp.ClientError, OSError) as error:
            reason = f"no response from the API server {connection.server}: {error}"
            raise StatusError(502, reason) from error
        except ValueError as error:
            raise StatusError(502, f"the API server's response is not JSON: {error}") from error


def _wanted(write: _Write, current: Json) -> Json:
    """Return the object that a write to `current` asks for, with its owners."""
    wanted = _patched_or_sent(write, current)
    metadata = dict(wanted.get("metadata") or {})
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
    return with_identity({**wanted, "metadata": metadata}, current)


def _patched_or_sent(write: _Write, current: Json) -> Json:
    if write.method == "PATCH":
        return patched(current, write.kind, write.body)
    return _object(write.kind, write.body)


def _object(kind: str, body: bytes) -> Json:
    """Return the object of a body. Raises ValueError."""
    if kind == PROTOBUF:
        raise StatusError(415, "a dry run cannot write an object twice in protobuf: send JSON")
    content = decode_yaml(body) if "yaml" in kind else decode_json(body)
    if not isinstance(content, dict):
        raise ValueError("invalid body: expected an object")  # noqa: TRY004 (of the client)
    return content


def _name(kind: str, body: bytes) -> str:
    """Return the name of an object that is created, empty if the API server generates it."""
    if kind == PROTOBUF:
        return ""
    try:
        return str((_object(kind, body).get("metadata") or {}).get("name") or "")
    except (ValueError, AttributeError):
        return ""


def _with_version(body: Json) -> Json:
    """Return an object with a resourceVersion: clients send back the one that they have read."""
    metadata = body.get("metadata") or {}
    return {**body, "metadata": {"resourceVersion": "1", **metadata}}


def _not_found(info: RequestInfo) -> Answer:
    group = f"{info.resource}.{info.group}" if info.group else info.resource
    return Answer(404, status_of(404, "NotFound", f'{group} "{info.name}" not found'))


def _scale(body: Json) -> Json:
    replicas = (body.get("spec") or {}).get("replicas", 1)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": body.get("metadata") or {},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas},
    }


def _scaled(body: Json, scale: Json) -> Json:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return {**body, "spec": {**(body.get("spec") or {}), "replicas": replicas}}


def _selectors(request: web.BaseRequest) -> dict[str, str]:
    names = ("labelSelector", "fieldSelector")
    return {name: request.query[name] for name in names if name in request.query}


def _item_kind(listed: Json) -> str:
    return str(listed.get("kind", "")).removesuffix("List")


def _uid(body: Json) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")
