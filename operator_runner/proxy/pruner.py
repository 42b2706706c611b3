"""Delete the members of a resource that a complete run did not want: requests of `prune`.

The members that runs of this process wrote are known from their responses. Those of earlier
processes are listed once, after the first complete run of the resource.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import structlog

from operator_runner import __version__
from operator_runner.core.errors import ApiError, Conflict, Fenced, NotFound
from operator_runner.core.fencing import Fence
from operator_runner.core.model import GVK, PART_OF, Json, ObjectRef, Prune, generation_of
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.proxy import applyset
from operator_runner.proxy.applyset import Members, RunMembers
from operator_runner.proxy.dry_run.overlay import ObjectKey
from operator_runner.proxy.metadata_client import MetadataClient
from operator_runner.proxy.ownership import Owner, uid_in
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.reconcile.results import PruneResult

_log = structlog.get_logger(__name__)
_ATTEMPTS = 3
"""Deletions of an object that others write meanwhile."""


class ObjectPruner:
    """Knows the members of the resources of watches with `prune`, and deletes orphans."""

    def __init__(self, api: Api, discovery: Discovery, states: ResourceStates) -> None:
        """Send nothing yet; `states` keep the members of each resource."""
        self._api = api
        self._metadata = MetadataClient(api)
        self._discovery = discovery
        self._states = states
        self._kinds: dict[GVK, set[str]] = {}
        """Kinds of members by that of their resources: new resources record them at once."""

    def begin(self, resource: Json, *, is_dry_run: bool) -> RunMembers:
        """Return what a run of a resource will want, nothing so far."""
        owner = Owner.of(resource)
        state = self._states.of(owner.ref)
        known = state.find(Members)
        if known is None or known.owner.uid != owner.uid:
            state.drop(Members)
            known = state.slot(Members, owner)
            known.read(resource)
            # Kinds are recorded before the first object of them is created.
            known.is_listed = not known.kinds
        known.read(resource)
        if not is_dry_run:
            known.is_listed = known.is_listed and not known.is_running
            known.is_running = True
        return RunMembers(known, is_dry_run, generation_of(resource))

    async def announce(self, run: RunMembers, info: RequestInfo, fence: Fence) -> str:
        """Record the kind of an object in the resource, before a run creates the object.

        Returns the new resourceVersion of the resource, empty if nothing was to be written.
        Raises ApiError.
        """
        if run.is_dry_run:
            return ""
        known = run.members
        found = await self._discovery.resource_named(info.group, info.version, info.resource)
        kind = found.gvk.kind_and_group
        async with known.lock:
            kinds = self._kinds.setdefault(known.owner.ref.gvk, set())
            kinds.add(kind)
            if not known.add(kind, info.namespace):
                return ""
            known.kinds |= kinds
            return await self._record(known, fence)

    async def _record(self, known: Members, fence: Fence) -> str:
        """Write the annotations of a resource; return its new resourceVersion. Raises ApiError."""
        before = known.recorded
        annotations = known.annotations(f"operator-runner/{__version__}")
        path = await self._owner_path(known)
        metadata = {"uid": known.owner.uid, "annotations": annotations}
        try:
            written = await self._metadata.merge(path, metadata, fence)
        except BaseException:
            known.recorded = before
            raise
        return str(written.get("resourceVersion") or "")

    async def _owner_path(self, known: Members) -> str:
        ref = known.owner.ref
        return (await self._discovery.resource(ref.gvk)).path(ref.namespace, ref.name)

    async def prune(self, run: RunMembers, prune: Prune, fence: Fence) -> PruneResult:
        """Delete the members that a complete run did not want. Raises Fenced, ApiError.

        They are only counted if the resource was edited since the start of the run: its new spec
        may want them.
        """
        result = PruneResult()
        run.members.is_running = False
        has_listed = not run.members.is_listed
        if has_listed:
            result.refused += await self._list(run.members)
        orphans = await self._orphans(run, prune)
        if orphans and await self._is_outdated(run):
            result.skipped = len(orphans)
            return result
        await self._delete_all(run, orphans, prune, fence, result)
        if not result.refused:
            try:
                result.version = await self._update_kinds(run.members, fence, drop=has_listed)
            except Fenced:
                raise
            except ApiError as error:
                result.refused.append(str(error))
        return result

    async def _delete_all(
        self,
        run: RunMembers,
        orphans: dict[ObjectRef, ObjectKey],
        prune: Prune,
        fence: Fence,
        result: PruneResult,
    ) -> None:
        for ref in applyset.in_deletion_order(orphans):
            key = orphans[ref]
            try:
                why = await self._delete(run, key, prune, fence)
            except Fenced:
                raise
            except ApiError as error:
                result.refused.append(f"{ref}: {error}")
            else:
                if why:
                    _log.debug("Not pruned", object=str(ref), reason=why)
                else:
                    result.deleted.append(ref)

    async def _is_outdated(self, run: RunMembers) -> bool:
        """Return whether the resource has another spec than at the start of the run, or is gone."""
        path = await self._owner_path(run.members)
        live = await self._metadata.at(path)
        is_same = uid_in(live) == run.members.owner.uid and not live.get("deletionTimestamp")
        return not is_same or generation_of({"metadata": live}) != run.generation

    async def _update_kinds(self, known: Members, fence: Fence, *, drop: bool) -> str:
        """Record the kinds of members again if annotations were lost, as by `kubectl replace`.

        With `drop` those without members go, which a newer role may have no permission to list.
        Returns the new resourceVersion of the resource, empty if nothing was to be written. Raises
        ApiError.
        """
        places = {
            (key.group, version, key.resource, key.namespace)
            for key, version in known.objects.items()
        }
        used = {(group, resource) for group, _, resource, _ in places}
        async with known.lock:
            for group, version, plural, namespace in places:
                found = await self._discovery.resource_named(group, version, plural)
                known.add(found.gvk.kind_and_group, namespace)
            for kind in sorted(known.kinds) if drop else ():
                resource = await self._find(kind)
                # A kind that is not served now may be served again, with its objects.
                if resource and (resource.gvk.group, resource.plural) not in used:
                    known.kinds.discard(kind)
                    self._kinds.get(known.owner.ref.gvk, set()).discard(kind)
            return "" if known.is_recorded else await self._record(known, fence)

    async def preview(self, run: RunMembers, prune: Prune) -> list[Json]:
        """Return the objects that `prune` would delete. Raises ApiError."""
        if not run.members.is_listed and (refused := await self._list(run.members)):
            raise ApiError("; ".join(refused))
        found: list[Json] = []
        orphans = await self._orphans(run, prune)
        for ref in applyset.in_deletion_order(orphans):
            try:
                body = await self._api.request("GET", _path(run.members, orphans[ref]))
            except NotFound:
                continue
            if not _refusal(run, body["metadata"]):
                found.append(body)
        return found

    async def _orphans(self, run: RunMembers, prune: Prune) -> dict[ObjectRef, ObjectKey]:
        """Return the members to delete; those of kinds that no longer exist are forgotten."""
        found: dict[ObjectRef, ObjectKey] = {}
        for key in applyset.candidates(run, prune):
            version = run.members.objects[key]
            try:
                kind = await self._discovery.resource_named(key.group, version, key.resource)
            except NotFound:
                del run.members.objects[key]
                continue
            found[ObjectRef(kind.gvk, key.namespace, key.name)] = key
        return found

    async def _delete(self, run: RunMembers, key: ObjectKey, prune: Prune, fence: Fence) -> str:
        """Delete an object if it is still a member; return why not, empty if it was deleted."""
        members = run.members
        path = _path(members, key)
        for attempt in range(1, _ATTEMPTS + 1):
            live = await self._metadata.at(path)
            why = _refusal(run, live) if live else "it does not exist"
            if why:
                # Controllers copy labels, as from a Service to its EndpointSlices.
                if not applyset.is_disabled(live):
                    members.objects.pop(key, None)
                return why
            options = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": prune.propagation,
                "preconditions": {"uid": live["uid"], "resourceVersion": live["resourceVersion"]},
            }
            try:
                await self._api.request("DELETE", path, body=options, fence=fence)
            except NotFound:
                members.objects.pop(key, None)
                return "it does not exist"
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
            else:
                members.objects.pop(key, None)
                return ""
        raise AssertionError("the last attempt returns")

    async def _list(self, members: Members) -> list[str]:
        """Read the members of earlier processes; return what could not be listed."""
        refused: list[str] = []
        for kind in sorted(members.kinds):
            resource = await self._find(kind)
            if resource is None:
                continue
            try:
                async for key in self._listed(members, resource):
                    members.objects.setdefault(key, resource.gvk.version)
            except NotFound:
                continue
            except ApiError as error:
                refused.append(f"{kind}: {error}")
        members.is_listed = not refused
        return refused

    async def _listed(self, members: Members, resource: ApiResource) -> AsyncIterator[ObjectKey]:
        gvk = resource.gvk
        for namespace in members.places if resource.namespaced else [""]:
            info = RequestInfo(gvk.group, gvk.version, namespace, resource.plural)
            selectors = [("labelSelector", f"{PART_OF}={members.id}")]
            async for metadata in self._metadata.collection(info, selectors):
                place = str(metadata.get("namespace") or "")
                yield ObjectKey(info.group, info.resource, place, str(metadata["name"]))

    async def _find(self, kind: str) -> ApiResource | None:
        """Return the resource of a kind such as `Deployment.apps`, None if it is not served."""
        group, name = applyset.group_and_kind(kind)
        return await self._discovery.preferred(group, name)


def _refusal(run: RunMembers, metadata: Json) -> str:
    """Return why a live object that the run did not want is not deleted, empty if it is."""
    why = applyset.refusal(run.members.owner, metadata)
    if not why and metadata["uid"] in run.uids:
        return "the run has written or read it in another group of the API"
    return why


def _path(members: Members, key: ObjectKey) -> str:
    version = members.objects[key]
    return RequestInfo(key.group, version, key.namespace, key.resource, key.name).object_path
