"""Decides on a write of a run before it is sent: whose object it is about, and what its body gets.

Three kinds of write need a look at what is there: PUT and server-side apply, whose bodies say all
of an object and would take its owners away, and with `ownership: refuse` or `adopt` each write to
an object that exists. As objects may come and go between the look and the write, the write has
what was seen as a precondition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from operator_runner.core.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from operator_runner.core.model import GVK, Json, Ownership
from operator_runner.kube.discovery import Discovery
from operator_runner.proxy import bodies
from operator_runner.proxy.existing import ExistingObjects
from operator_runner.proxy.grants import Grant
from operator_runner.proxy.ownership import (
    ABSENT,
    Claim,
    can_be_owned,
    claim,
    controller_of,
    describe_owner,
    has_owner,
    is_owned,
    keep,
    mark,
)
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.proxy.status_errors import Refusal

_log = structlog.get_logger(__name__)

_SESSIONS = frozenset({"attach", "exec", "portforward"})
"""Subresources of a Pod that act on it whatever the method: a websocket begins with a GET."""
_WITH_METADATA = frozenset({"", "scale", "status"})
"""Subresources whose bodies have the metadata of the object; others are sent as they are."""
_CONTROLLERS = 5
"""Controllers above an object that are looked at; a Pod of a CronJob has two."""
_NAMED = 3
"""Objects of others that the refusal of a deletion names."""
_METHOD_NOT_ALLOWED = 405


@dataclass(frozen=True, slots=True)
class Write:
    """A request that may change an object.

    `kind` is the media type of its body, `has_body` whether it has one. `manager` is the field
    manager, `selection` what the query selects of a collection.
    """

    grant: Grant
    method: str
    info: RequestInfo
    kind: str = ""
    has_body: bool = True
    manager: str = ""
    dry_run: bool = False
    selection: tuple[tuple[str, str], ...] = ()
    requests: list[tuple[str, str]] = field(default_factory=list, compare=False)
    """Method and path of what the decision asked of the API server."""

    @property
    def applies(self) -> bool:
        """Whether it is a server-side apply."""
        return self.method == "PATCH" and self.kind in bodies.APPLY

    @property
    def states_all(self) -> bool:
        """Whether the body says all of an object, which it creates if there is none."""
        return (self.method == "PUT" or self.applies) and not self.info.subresource


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a write that may be sent.

    `edit` returns the body to send, None if it is sent as it is; `query` is added to the query.
    `seen` has the uid and, where it is a precondition, the resourceVersion of what is there, both
    empty for nothing; None if nobody looked.
    """

    edit: Callable[[bytes], bytes] | None = None
    query: str = ""
    seen: tuple[str, str] | None = None


_AS_IT_IS = Decision()


def is_write(method: str, info: RequestInfo) -> bool:
    """Whether a request may change an object."""
    session = info.resource == "pods" and info.subresource in _SESSIONS
    return method in {"POST", "PUT", "PATCH", "DELETE"} or session


class Admission:
    """Decides on writes; asks the API server where it has to."""

    def __init__(self, existing: ExistingObjects, discovery: Discovery, *, inject: bool) -> None:
        """`inject` says whether what runs create gets an owner."""
        self._existing = existing
        self._discovery = discovery
        self._inject = inject
        self._unreadable: set[tuple[str, str]] = set()

    async def decide(self, write: Write) -> Decision:
        """Return what to do with a write. Raises Refusal if it must not be sent."""
        info = write.info
        if not can_be_owned(replace(info, subresource="")):
            return _AS_IT_IS
        if write.method == "POST" and not info.name:
            return _edited(write, _creation(write)) if self._inject else _AS_IT_IS
        enforced = await self._is_enforced(write)
        if info.name and (enforced or (self._inject and write.states_all)):
            return await self._on_object(write, enforced=enforced)
        if enforced and write.method == "DELETE":
            await self._check_selection(write)
        return _AS_IT_IS

    async def is_outdated(self, write: Write, decision: Decision) -> bool:
        """Whether what is there is not what the decision is about."""
        if decision.seen is None:
            return False
        live = await self._look(write, enforced=False) or {}
        uid, version = decision.seen
        return live.get("uid", "") != uid or version not in {"", live.get("resourceVersion")}

    async def _is_enforced(self, write: Write) -> bool:
        watch, info = write.grant.watch, write.info
        if watch.ownership is Ownership.IGNORE:
            return False
        if not watch.ownership_exceptions:
            return True
        kind = await self._kind(info)
        return not any(
            (info.group, kind) == (gvk.group, gvk.kind) for gvk in watch.ownership_exceptions
        )

    async def _on_object(self, write: Write, *, enforced: bool) -> Decision:
        info = write.info
        live = await self._look(write, enforced=enforced)
        if live is None:
            return _AS_IT_IS
        if live:
            return await self._on_existing(write, live, enforced=enforced)
        if write.states_all:
            edit = _creation(write) if self._inject else _no_claim
            return _edited(write, _if_absent(edit), seen=("", ""))
        # Sent all the same, it could meet an object that somebody makes at this moment.
        raise Refusal(404, f'{_plural(info)} "{info.name}" not found', own=False)

    async def _on_existing(self, write: Write, live: Json, *, enforced: bool) -> Decision:
        uid = str(live.get("uid", ""))
        owning = self._inject and write.states_all
        if enforced and not await self._belongs(write, live):
            if write.grant.watch.ownership is Ownership.REFUSE or has_owner(live):
                raise Refusal(403, await self._refusal(write, live))
            if owning:
                version = str(live.get("resourceVersion", ""))
                edit = _with_preconditions(_creation(write), uid, version)
                return _edited(write, edit, seen=(uid, version))
            await self._adopt(write, live)
        if owning:
            manager = write.manager if write.applies else None
            edit = partial(_kept, write, live, manager)
            return _edited(
                write, _with_preconditions(edit, uid) if enforced else edit, seen=(uid, "")
            )
        return _only(write, uid)

    # Whose it is ---------------------------------------------------------------------

    async def _belongs(self, write: Write, metadata: Json) -> bool:
        """Whether an object is the owner, the owner's, or controlled by what is the owner's."""
        grant = write.grant
        seen: set[str] = set()
        for _ in range(_CONTROLLERS + 1):
            uid = metadata.get("uid", "")
            seen.add(uid)
            if uid == grant.owner.uid or uid in grant.own or is_owned(grant.owner, metadata):
                grant.own.update(seen)
                return True
            reference = controller_of(metadata)
            if reference is None:
                return False
            metadata = await self._controller(write, reference)
            # Of the same name, but not the one that is meant.
            if metadata.get("uid") != reference.get("uid"):
                return False
        return False

    async def _controller(self, write: Write, reference: Mapping[str, Any]) -> Json:
        gvk = GVK.of(str(reference.get("apiVersion")), str(reference.get("kind")))
        try:
            resource = await self._discovery.resource(gvk)
            path = resource.path(write.info.namespace, str(reference.get("name")))
            write.requests.append(("GET", path))
            return await self._existing.at(path)
        except NotFound:
            return {}
        except ApiError as error:
            raise _unverified(write.info, error) from error

    async def _check_selection(self, write: Write) -> None:
        """Raise Refusal if a deletion of many would delete what belongs to others."""
        others: list[str] = []
        write.requests.append(("GET", write.info.collection_path))
        refuses = write.grant.watch.ownership is Ownership.REFUSE
        try:
            async for metadata in self._existing.collection(write.info, write.selection):
                info = replace(write.info, name=str(metadata.get("name")))
                one = replace(write, info=info)
                if not await self._belongs(one, metadata) and (refuses or has_owner(metadata)):
                    others.append(f"{metadata.get('name')} ({describe_owner(metadata)})")
        except ApiError as error:
            raise _unverified(write.info, error) from error
        if others:
            named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
            raise Refusal(
                403,
                f"{len(others)} of the selected {_plural(write.info)} do not belong to"
                f" {write.grant.owner.ref}: {named}; select those that do, or {_cure(write)}",
            )

    async def _refusal(self, write: Write, live: Json) -> str:
        info = write.info
        where = f"{info.namespace}/{info.name}" if info.namespace else info.name
        return (
            f"{await self._kind(info)} {where} does not belong to {write.grant.owner.ref}, it is"
            f" {describe_owner(live)}; rename one of the two, or {_cure(write, live)}"
        )

    async def _adopt(self, write: Write, live: Json) -> None:
        """Give the owner to an object that has none, ahead of a write whose body cannot do so."""
        if write.dry_run or not self._inject or write.method not in {"PUT", "PATCH"}:
            return
        added = _creation(write)({"metadata": {"name": live.get("name")}})
        metadata: Json = {"uid": live["uid"], "resourceVersion": live["resourceVersion"]}
        if added.references:
            metadata["ownerReferences"] = [*added.references]
        if added.annotations:
            metadata["annotations"] = {**added.annotations}
        write.requests.append(("PATCH", write.info.object_path))
        try:
            await self._existing.merge(write.info.object_path, metadata)
        except Conflict as error:
            raise Refusal(409, f"{error}; it had no owner before, so try again") from error
        except ApiError as error:
            raise _failed(error, f"cannot set the owner of {_plural(write.info)}") from error

    # What is there -------------------------------------------------------------------

    async def _look(self, write: Write, *, enforced: bool) -> Json | None:
        """Return the metadata of what is there, empty for nothing, None if it cannot be read."""
        write.requests.append(("GET", write.info.object_path))
        try:
            return await self._existing.at(write.info.object_path)
        except ApiError as error:
            if error.status == _METHOD_NOT_ALLOWED:
                return None  # nothing that is stored
            if enforced or not isinstance(error, Forbidden):
                raise _unverified(write.info, error) from error
            self._warn(write.info, error)
            return None

    def _warn(self, info: RequestInfo, error: ApiError) -> None:
        resource = info.group, info.resource
        if resource not in self._unreadable:
            self._unreadable.add(resource)
            _log.warning(
                "Cannot get objects before they are written; their owners are not set",
                resource=_plural(info),
                error=str(error),
                cure="grant the verb get",
            )

    async def _kind(self, info: RequestInfo) -> str:
        """Return the kind of a resource, or its plural where that is unknown."""
        try:
            found = await self._discovery.resource_named(info.group, info.version, info.resource)
        except ApiError:
            return _plural(info)
        return found.gvk.kind


def _edited(
    write: Write, edit: Callable[[Json], Claim], seen: tuple[str, str] | None = None
) -> Decision:
    return Decision(partial(bodies.add_owner, write.kind, claim=edit), seen=seen)


def _only(write: Write, uid: str) -> Decision:
    """Return the decision to send a write for the object with this uid only."""
    seen = (uid, "")
    if write.method == "DELETE" and not write.info.subresource:
        if not write.has_body:
            return Decision(query=f"uid={uid}", seen=seen)
        return Decision(partial(bodies.add_precondition, write.kind, uid=uid), seen=seen)
    if write.method not in {"PUT", "PATCH"} or write.info.subresource not in _WITH_METADATA:
        return _AS_IT_IS
    if write.kind == bodies.JSON_PATCH:
        return Decision(partial(bodies.add_test, uid=uid), seen=seen)
    return _edited(write, lambda _: Claim(uid=uid), seen)


def _creation(write: Write) -> Callable[[Json], Claim]:
    """Return what a body gets that creates an object.

    A ConfigMap that a finalizer creates is a record: owned, it would go before anybody has read
    it. What else it creates is to go, or a Job of the same name would be taken for done at the
    next clean-up. Where ownership matters, a record still shows to whom it belongs.
    """
    grant, info = write.grant, write.info
    if not grant.of_finalizer or (info.group, info.resource) != ("", "configmaps"):
        return partial(claim, grant.owner, info)
    if grant.watch.ownership is Ownership.IGNORE:
        return _no_claim
    return partial(mark, grant.owner, info)


def _no_claim(_: Json) -> Claim:
    return Claim()


def _kept(write: Write, live: Json, manager: str | None, body: Json) -> Claim:
    return keep(write.grant.owner, write.info, body, live, manager)


def _if_absent(edit: Callable[[Json], Claim]) -> Callable[[Json], Claim]:
    """Return `edit` with the precondition that there is no such object."""

    def edited(body: Json) -> Claim:
        added = edit(body)
        return replace(added, resource_version=ABSENT) if added else added

    return edited


def _with_preconditions(
    edit: Callable[[Json], Claim], uid: str, version: str = ""
) -> Callable[[Json], Claim]:
    return lambda body: replace(edit(body), uid=uid, resource_version=version)


def _unverified(info: RequestInfo, error: ApiError) -> Refusal:
    return _failed(error, f"cannot get the owner of {_plural(info)}")


def _failed(error: ApiError, what: str) -> Refusal:
    if isinstance(error, Forbidden):
        return Refusal(403, f"{what}: {error}; grant the operator this right")
    if isinstance(error, Unavailable):
        return Refusal(503, f"{what}: {error}", retry_after=1)
    return Refusal(502, f"{what}: {error}")


def _plural(info: RequestInfo) -> str:
    return f"{info.resource}.{info.group}" if info.group else info.resource


def _cure(write: Write, live: Json | None = None) -> str:
    kind = write.grant.owner.ref.gvk.kind
    takes = write.grant.watch.ownership is Ownership.REFUSE and live and not has_owner(live)
    choices = "`ownership: adopt` or `ownership: ignore`" if takes else "`ownership: ignore`"
    return f"set {choices} for {kind} in watches.yaml"
