"""Admission of a run's writes: check the owner of the object, set owner metadata in the body.

These writes need a GET of the live object first: PUT and server-side apply, which replace an
object and would remove its owners; writes of the owner, which may have been created again; and
with `ownership: refuse` or `adopt` each write to an object that exists. The object may change
between the GET and the write, so the write carries uid or resourceVersion of the live object as a
precondition. An apply of the object that the run has read last needs no other GET: it is sent with
that resourceVersion, and if the object has changed, again after a GET. With `apply: server-side`
fields are taken over before, see managed_fields.py.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import structlog
from aiohttp import hdrs, web

from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound
from operator_runner.core.model import FORMER_OWNER, GVK, NOT_OWNED, PART_OF, Json, Ownership
from operator_runner.kube.discovery import Discovery
from operator_runner.proxy import bodies
from operator_runner.proxy.applyset import RunMembers, forges_label
from operator_runner.proxy.bodies import decode_json
from operator_runner.proxy.managed_fields import taken_over
from operator_runner.proxy.metadata_client import MetadataClient
from operator_runner.proxy.ownership import (
    ABSENT_RESOURCE_VERSION,
    MetadataPatch,
    controller_of,
    describe_ownership,
    has_any_owner,
    has_former_owner,
    is_owned,
    is_stored,
    patch_for_create,
    patch_for_record,
    patch_for_update,
    uid_in,
)
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError, error_of_request, not_found

_log = structlog.get_logger(__name__)

_STREAMING = frozenset({"attach", "exec", "portforward"})
"""Subresources of a Pod that act on it with any method: a websocket begins with a GET."""
_READABLE_STREAMS = frozenset({"", "log"})
"""Subresources that an upgraded GET only reads; by `nodes/NAME/proxy/exec` it runs commands."""
_BINDING = ("pods", "binding")
"""Assigns a Pod to a node; its body has the metadata of the Pod."""
_NAMED_IN_BODY = {("", "bindings"): _BINDING}
"""Collections whose POST acts on an existing object, with the subresource that does the same."""
_SUBRESOURCES_WITH_METADATA = frozenset({"", "scale", "status"})
"""Subresources whose bodies have the metadata of the object; others are sent unchanged."""
_MAX_CONTROLLERS = 5
"""Controllers above an object that are followed; a Pod of a CronJob has two."""
_MAX_CONFLICTS = 5
"""Times that an object is read again to take over fields; the next run does what is left."""
_MAX_NAMES = 3
"""Foreign objects that the error of a refused deletion names."""
_METHOD_NOT_ALLOWED = 405
_SELECTORS = ("labelSelector", "fieldSelector")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A request that may change an object.

    `media_type` is that of the body; `has_body` is False without one. `field_manager` is the
    manager of a server-side apply, `selectors` are the selectors of a deletecollection.
    """

    grant: Grant
    method: str
    info: RequestInfo
    media_type: str = ""
    has_body: bool = True
    field_manager: str = ""
    dry_run: bool = False
    selectors: tuple[tuple[str, str], ...] = ()
    requests: list[tuple[str, str]] = field(default_factory=list, compare=False)
    """Method and path of each request that the decision sent to the API server."""

    @classmethod
    def of(cls, received: web.BaseRequest, grant: Grant, info: RequestInfo, **others: Any) -> Self:
        """Return the write that a request of a run is; `others` are further fields."""
        query = received.query
        return cls(
            grant,
            received.method,
            info.target,
            bodies.media_type(received.headers.get(hdrs.CONTENT_TYPE, "")),
            field_manager=query.get("fieldManager", ""),
            dry_run=bool(query.get("dryRun")) or grant.dry_run is not None,
            selectors=tuple((key, query[key]) for key in _SELECTORS if key in query),
            **others,
        )

    @property
    def is_apply(self) -> bool:
        """Return whether it is a server-side apply."""
        return self.method == "PATCH" and self.media_type in bodies.APPLY

    @property
    def overrules(self) -> bool:
        """Return whether it applies what a role of `apply: server-side` asks for."""
        manager = self.grant.watch.field_manager
        is_whole = self.is_apply and not self.info.subresource
        return is_whole and manager != "" and self.field_manager == manager

    @property
    def replaces_object(self) -> bool:
        """Return whether the body describes the whole object, and creates it if missing."""
        return (self.method == "PUT" or self.is_apply) and not self.info.subresource


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on an admitted write: how to send it.

    `edit` returns the body to send; None sends it unchanged. `query` is added to the query.
    `seen` has uid and, where it is a precondition, resourceVersion of the live object, both empty
    if it does not exist; None if the live object was not read. `live` is its metadata.
    """

    edit: Callable[[bytes], bytes] | None = None
    query: str = ""
    seen: tuple[str, str] | None = None
    live: Json | None = None


_UNCHANGED = Decision()


def is_write(method: str, info: RequestInfo, *, upgraded: bool = False) -> bool:
    """Return whether a request may change an object; `upgraded` ones are streams, such as exec."""
    if method in {"POST", "PUT", "PATCH", "DELETE"}:
        return True
    if upgraded and info.subresource not in _READABLE_STREAMS:
        return True
    return info.resource == "pods" and info.subresource in _STREAMING


def is_target_in_body(write: WriteRequest) -> bool:
    """Return whether a write acts on an object that only its body names."""
    return write.method == "POST" and (write.info.group, write.info.resource) in _NAMED_IN_BODY


def with_target(write: WriteRequest, body: bytes) -> WriteRequest:
    """Return a write as one of the object that its body names.

    Raises StatusError if it names none, DecodingError beyond the bounds.
    """
    info = write.info
    resource, subresource = _NAMED_IN_BODY[info.group, info.resource]
    name = bodies.name_in(write.media_type, body)
    if not name:
        raise StatusError(400, f"invalid body for {info.plural}: set metadata.name")
    target = replace(info, resource=resource, name=name, subresource=subresource)
    return replace(write, info=target)


class Admission:
    """Decides how writes are sent; reads live objects where that is necessary."""

    def __init__(
        self,
        metadata_client: MetadataClient,
        discovery: Discovery,
        *,
        inject: bool,
        announce: Callable[[Grant, RequestInfo], Awaitable[None]],
    ) -> None:
        """`inject` adds the owner to the objects that runs create.

        `announce` is called before a run with `prune` writes an object.
        """
        self._announce = announce
        self._metadata_client = metadata_client
        self._discovery = discovery
        self._inject = inject
        self._unreadable: set[tuple[str, str]] = set()

    async def decide(self, write: WriteRequest) -> Decision:
        """Return how to send a write. Raises StatusError if it must not be sent."""
        decision = await self._decide(write)
        if write.grant.members is None or write.method == "DELETE" or not write.has_body:
            return decision
        return await self._labelled(write, write.grant.members, decision)

    async def _labelled(
        self, write: WriteRequest, members: RunMembers, decision: Decision
    ) -> Decision:
        """Return the decision, with the label of the members of an ApplySet."""
        info, is_create = write.info, write.method == "POST"
        has_metadata = info.subresource in _SUBRESOURCES_WITH_METADATA
        if not has_metadata or not is_stored(info):
            return decision
        is_whole = is_create or write.replaces_object
        live = {} if is_create else decision.live
        if not info.subresource and members.may_join(info, live, is_whole=is_whole):
            try:
                await self._announce(write.grant, info)
            except ApiError as error:
                what = f"cannot record the kind of {info.plural} in {write.grant.owner.ref}"
                raise error_of_request(error, what) from error
        if info.subresource or write.media_type == bodies.JSON_PATCH:
            await self._mark(write, members, decision.live)
        if write.media_type == bodies.JSON_PATCH:
            return _then(decision, _refuse_label)
        patch = partial(members.patch, info, live=live, is_whole=is_whole)
        return _then(decision, partial(bodies.add_owner, write.media_type, patch_for=patch))

    async def _mark(self, write: WriteRequest, members: RunMembers, live: Json | None) -> None:
        """Label an object of several resources before a write that cannot."""
        target = replace(write.info, subresource="")
        label = members.mark(target, live)
        if not label or write.dry_run:
            return
        path = target.object_path
        write.requests.append(("PATCH", path))
        labels = {"labels": {PART_OF: label}}
        try:
            metadata = await self._metadata_client.merge(path, labels, write.grant.fence)
        except NotFound:
            return
        except ApiError as error:
            _log.warning("Cannot mark an object as wanted", object=path, error=str(error))
        else:
            members.on_response("PATCH", target, metadata)

    async def _decide(self, write: WriteRequest) -> Decision:
        info = write.info
        if not is_stored(info):
            return _UNCHANGED
        if write.method == "POST" and not info.name:
            return _edited(write, _create_patch(write)) if self._inject else _UNCHANGED
        enforced = await self._is_enforced(write)
        if info.name and (
            enforced
            or (self._inject and write.replaces_object)
            or write.overrules
            or await self._names_owner(write)
        ):
            return await self._decide_on_object(write, enforced=enforced)
        if enforced and write.method == "DELETE":
            await self._check_collection(write)
        return _UNCHANGED

    async def is_outdated(self, write: WriteRequest, decision: Decision) -> bool:
        """Return whether the live object differs from the one that the decision was made for."""
        if decision.seen is None:
            return False
        live = await self._get_live(write, enforced=False) or {}
        uid, version = decision.seen
        if version:
            write.grant.owned_uids.discard(uid)  # it may have another owner by now
        return live.get("uid", "") != uid or version not in {"", live.get("resourceVersion")}

    async def _is_enforced(self, write: WriteRequest) -> bool:
        watch, info = write.grant.watch, write.info
        if watch.ownership is Ownership.IGNORE:
            return False
        if not watch.ownership_exceptions:
            return True
        kind = await self._kind(info)
        return not any(
            (info.group, kind) == (gvk.group, gvk.kind) for gvk in watch.ownership_exceptions
        )

    async def _decide_on_object(self, write: WriteRequest, *, enforced: bool) -> Decision:
        info = write.info
        read = self._last_read(write)
        live = await self._get_live(write, enforced=enforced) if read is None else read
        if live is None:
            return _UNCHANGED
        if live:
            decision = await self._decide_on_existing(
                write, live, enforced=enforced, is_read_before=read is not None
            )
            return replace(decision, live=live)
        if write.replaces_object:
            edit = _create_patch(write) if self._inject else _no_patch
            return replace(_edited(write, _if_absent(edit), seen=("", "")), live={})
        # If sent, it could reach an object that another client creates at this moment.
        raise not_found(info)

    def _last_read(self, write: WriteRequest) -> Json | None:
        """Return the metadata of the object of an apply if the run has read it last.

        Not if fields are taken over: of an object that is nested too deep, the tracker has some.
        """
        read = write.grant.last_read.pop(write.info.object_path, None)
        is_apply = write.is_apply and write.replaces_object
        if not (read is not None and is_apply and self._inject) or write.grant.dry_run is not None:
            return None
        return None if write.overrules and _taken_over(write, read) is not None else read

    async def _decide_on_existing(
        self, write: WriteRequest, live: Json, *, enforced: bool, is_read_before: bool
    ) -> Decision:
        info, uid = write.info, uid_in(live)
        owning = self._inject and write.replaces_object
        names_owner = await self._names_owner(write)
        if names_owner and uid != write.grant.owner.uid:
            # Also with `ignore`. With `adopt` the new resource would be deleted with the former.
            raise StatusError(
                403,
                f"{write.grant.owner.ref} was deleted and created again during this run; the new"
                " one gets a run of its own",
            )
        if enforced and not await self._belongs(write, live):
            if write.grant.watch.ownership is Ownership.REFUSE or has_any_owner(live):
                await self._refuse(write, live)
            if owning:
                version = str(live.get("resourceVersion", ""))
                edit = _with_preconditions(_create_patch(write), uid, version)
                return _edited(write, edit, seen=(uid, version))
            await self._adopt(write, live)
        if write.overrules and not write.dry_run:
            live = await self._take_over(write, live)
        if owning:
            manager = write.field_manager if write.is_apply else None
            edit = partial(patch_for_update, write.grant.owner, info, live=live, manager=manager)
            version = str(live.get("resourceVersion", "")) if is_read_before else ""
            if enforced or names_owner or version:
                edit = _with_preconditions(edit, uid, version)
            return _edited(write, edit, seen=(uid, version))
        if write.method == "POST" and (info.resource, info.subresource) == _BINDING:
            # The API server drops the uid of `bindings`, so that it is not a precondition.
            version = str(live.get("resourceVersion", ""))
            edit = _with_preconditions(_no_patch, uid, version)
            return _edited(write, edit, seen=(uid, version))
        return _require_uid(write, uid) if uid else _UNCHANGED

    # Ownership ---------------------------------------------------------------------

    async def _belongs(self, write: WriteRequest, metadata: Json) -> bool:
        """Return whether an object is the owner, or belongs to it, if only through controllers."""
        grant = write.grant
        seen: set[str] = set()
        for _ in range(_MAX_CONTROLLERS + 1):
            # Objects of some aggregated APIs have no uid: these are not one and the same.
            if uid := uid_in(metadata):
                seen.add(uid)
            if uid == grant.owner.uid or uid in grant.owned_uids or is_owned(grant.owner, metadata):
                grant.owned_uids.update(seen)
                return True
            reference = controller_of(metadata)
            if reference is None:
                return False
            metadata = await self._controller(write, reference)
            # An object of the same name, but not the controller.
            if not uid_in(metadata) or uid_in(metadata) != reference.get("uid"):
                return False
        return False

    async def _names_owner(self, write: WriteRequest) -> bool:
        """Return whether the path is that of the owner, or of another object of its name."""
        info, ref = write.info, write.grant.owner.ref
        where = (info.group, info.namespace, info.name)
        same = where == (ref.gvk.group, ref.namespace, ref.name)
        return same and await self._kind(info) == ref.gvk.kind

    async def _controller(self, write: WriteRequest, reference: Mapping[str, Any]) -> Json:
        gvk = GVK.of(str(reference.get("apiVersion")), str(reference.get("kind")))
        try:
            resource = await self._discovery.resource(gvk)
            path = resource.path(write.info.namespace, str(reference.get("name")))
            write.requests.append(("GET", path))
            return await self._metadata_client.at(path)
        except NotFound:
            return {}
        except ApiError as error:
            raise _owner_unknown(write.info, error) from error

    async def _check_collection(self, write: WriteRequest) -> None:
        """Raise StatusError if a deletecollection would delete objects of other owners."""
        others: list[str] = []
        write.requests.append(("GET", write.info.collection_path))
        refuses = write.grant.watch.ownership is Ownership.REFUSE
        try:
            async for metadata in self._metadata_client.collection(write.info, write.selectors):
                info = replace(write.info, name=str(metadata.get("name")))
                one = replace(write, info=info)
                if not await self._belongs(one, metadata) and (refuses or has_any_owner(metadata)):
                    others.append(f"{metadata.get('name')} ({describe_ownership(metadata)})")
        except ApiError as error:
            raise _owner_unknown(write.info, error) from error
        if others:
            named = ", ".join(others[:_MAX_NAMES]) + (", ..." if len(others) > _MAX_NAMES else "")
            raise StatusError(
                403,
                f"{len(others)} of the selected {write.info.plural} do not belong to"
                f" {write.grant.owner.ref}: {named}; select those that do, or {_remedy(write)}",
                reason=NOT_OWNED,
            )

    async def _refuse(self, write: WriteRequest, live: Json) -> None:
        """Raise the StatusError of a write to an object of another owner."""
        info, ref = write.info, write.grant.owner.ref
        where = f"{info.namespace}/{info.name}" if info.namespace else info.name
        what = f"{await self._kind(info)} {where}"
        if has_former_owner(write.grant.owner, live):
            message = f"{what} of a deleted {ref.gvk.kind} of this name will be deleted first"
            raise StatusError(403, message, reason=FORMER_OWNER)
        raise StatusError(
            403,
            f"{what} does not belong to {ref}, it {describe_ownership(live)}; rename one of the"
            f" two, or {_remedy(write, live)}",
            reason=NOT_OWNED,
        )

    async def _take_over(self, write: WriteRequest, live: Json) -> Json:
        """Give the role fields of managers that it overrules; return the metadata after that."""
        info = write.info
        for _ in range(_MAX_CONFLICTS):
            fields = _taken_over(write, live)
            if fields is None:
                return live
            write.requests.append(("PATCH", info.object_path))
            try:
                return await self._metadata_client.set_managed_fields(
                    info.object_path, fields, str(live["resourceVersion"]), write.grant.fence
                )
            except Conflict:
                again = await self._get_live(write, enforced=False)
                if not again or uid_in(again) != uid_in(live):
                    return live  # the precondition of the write fails
                live = again
            except ApiError as error:
                raise error_of_request(
                    error, f"cannot take over fields of {info.plural}"
                ) from error
        return live

    async def _adopt(self, write: WriteRequest, live: Json) -> None:
        """Set the owner of an object without one, before a write whose body cannot do so."""
        if write.dry_run or not self._inject or write.method not in {"PUT", "PATCH"}:
            return
        added = _create_patch(write)({"metadata": {"name": live.get("name")}})
        metadata = {key: live[key] for key in ("uid", "resourceVersion") if live.get(key)}
        if added.references:
            metadata["ownerReferences"] = [*added.references]
        if added.annotations:
            metadata["annotations"] = {**added.annotations}
        write.requests.append(("PATCH", write.info.object_path))
        try:
            await self._metadata_client.merge(write.info.object_path, metadata, write.grant.fence)
        except Conflict as error:
            raise StatusError(409, f"{error}; it had no owner before, so try again") from error
        except ApiError as error:
            raise error_of_request(error, f"cannot set the owner of {write.info.plural}") from error

    # Live objects -------------------------------------------------------------------

    async def _get_live(self, write: WriteRequest, *, enforced: bool) -> Json | None:
        """Return the metadata of the live object, empty if missing, None if it cannot be read."""
        write.requests.append(("GET", write.info.object_path))
        try:
            return await self._metadata_client.at(write.info.object_path)
        except ApiError as error:
            if error.status == _METHOD_NOT_ALLOWED:
                return None  # not a stored resource
            if enforced or not isinstance(error, Forbidden):
                raise _owner_unknown(write.info, error) from error
            self._warn(write.info, error)
            return None

    def _warn(self, info: RequestInfo, error: ApiError) -> None:
        resource = info.group, info.resource
        if resource not in self._unreadable:
            self._unreadable.add(resource)
            _log.warning(
                "Cannot get objects before writes: owners are not set",
                resource=info.plural,
                error=str(error),
                hint="grant the verb get",
            )

    async def _kind(self, info: RequestInfo) -> str:
        """Return the kind of a resource, or its plural if discovery does not have it."""
        try:
            found = await self._discovery.resource_named(info.group, info.version, info.resource)
        except ApiError:
            return info.plural
        return found.gvk.kind


def _edited(
    write: WriteRequest, edit: Callable[[Json], MetadataPatch], seen: tuple[str, str] | None = None
) -> Decision:
    return Decision(partial(bodies.add_owner, write.media_type, patch_for=edit), seen=seen)


def _then(decision: Decision, edit: Callable[[bytes], bytes]) -> Decision:
    """Return the decision with a further edit of the body."""
    first = decision.edit
    return replace(decision, edit=edit if first is None else lambda body: edit(first(body)))


def _refuse_label(body: bytes) -> bytes:
    """Return a JSON patch that does not set the label of a member. Raises StatusError."""
    try:
        operations = decode_json(body)
    except json.JSONDecodeError:
        return body
    if forges_label(operations):
        raise StatusError(403, f"a JSON patch may not set the label {PART_OF}: leave it out")
    return body


def _require_uid(write: WriteRequest, uid: str) -> Decision:
    """Return the decision to send a write only to the object with this uid."""
    seen = (uid, "")
    if write.method == "DELETE" and not write.info.subresource:
        if not write.has_body:
            return Decision(query=f"uid={uid}", seen=seen)
        return Decision(partial(bodies.add_precondition, write.media_type, uid=uid), seen=seen)
    if (
        write.method not in {"PUT", "PATCH"}
        or write.info.subresource not in _SUBRESOURCES_WITH_METADATA
    ):
        return _UNCHANGED
    if write.media_type == bodies.JSON_PATCH:
        return Decision(partial(bodies.add_test, uid=uid), seen=seen)
    return _edited(write, lambda _: MetadataPatch(uid=uid), seen)


def _create_patch(write: WriteRequest) -> Callable[[Json], MetadataPatch]:
    """Return the patch for the body of an object that is created.

    A ConfigMap that a finalizer creates is a record: with an owner reference it would be garbage
    collected before anyone can read it. Other objects get the owner and are deleted, or a Job of
    the same name would count as complete at the next clean-up. Unless ownership is ignored, a
    record names its owner in annotations.
    """
    grant, info = write.grant, write.info
    if not grant.of_finalizer or (info.group, info.resource) != ("", "configmaps"):
        return partial(patch_for_create, grant.owner, info)
    if grant.watch.ownership is Ownership.IGNORE:
        return _no_patch
    return partial(patch_for_record, grant.owner, info)


def _taken_over(write: WriteRequest, live: Json) -> list[Json] | None:
    """Return the managedFields of an object after fields are taken over; None if there are none."""
    api_version = GVK(write.info.group, write.info.version, "").api_version
    return taken_over(live.get("managedFields") or [], write.field_manager, api_version)


def _no_patch(_: Json) -> MetadataPatch:
    return MetadataPatch()


def _if_absent(edit: Callable[[Json], MetadataPatch]) -> Callable[[Json], MetadataPatch]:
    """Return `edit` with the precondition that the object does not exist."""

    def edited(body: Json) -> MetadataPatch:
        added = edit(body)
        return replace(added, resource_version=ABSENT_RESOURCE_VERSION) if added else added

    return edited


def _with_preconditions(
    edit: Callable[[Json], MetadataPatch], uid: str, version: str = ""
) -> Callable[[Json], MetadataPatch]:
    return lambda body: replace(edit(body), uid=uid, resource_version=version)


def _owner_unknown(info: RequestInfo, error: ApiError) -> StatusError:
    return error_of_request(error, f"cannot get the owner of {info.plural}")


def _remedy(write: WriteRequest, live: Json | None = None) -> str:
    kind = write.grant.owner.ref.gvk.kind
    takes = write.grant.watch.ownership is Ownership.REFUSE and live and not has_any_owner(live)
    choices = "`ownership: adopt` or `ownership: ignore`" if takes else "`ownership: ignore`"
    return f"set {choices} for {kind} in watches.yaml"
