"""Delete the objects of an operator in order, and report what is deleted and kept."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from operator_runner.core.errors import ConfigError, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import METADATA, METADATA_LIST, Api, list_pages
from operator_runner.kube.certificate_sources import SECRET_KEYS
from operator_runner.kube.discovery import ApiResource as Kind
from operator_runner.kube.discovery import Discovery

_CRD, _NAMESPACE, _WORKLOAD = "CustomResourceDefinition", "Namespace", "Deployment"
_SECRET = GVK("", "v1", "Secret")


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The objects of an installation, grouped by deletion order."""

    crds: tuple[ObjectRef, ...]
    """Kept by default: deleting a CRD deletes all resources of its kind."""
    workloads: tuple[ObjectRef, ...]
    """Deleted first. The rest follows when their Pods are gone: runs need RBAC until they end."""
    rest: tuple[ObjectRef, ...]
    made: tuple[ObjectRef, ...]
    """Secrets that the operator may have created: webhook certificates, by their Services."""
    namespaces: tuple[ObjectRef, ...]
    """Deleted last, and only if they contain nothing else."""


def plan_for(objects: Sequence[ObjectRef]) -> RemovalPlan:
    """Return the plan for objects in creation order; the rest is deleted in reverse order."""
    special = {_CRD, _NAMESPACE, _WORKLOAD}
    return RemovalPlan(
        crds=_of_kind(objects, _CRD),
        workloads=_of_kind(objects, _WORKLOAD),
        rest=tuple(ref for ref in reversed(objects) if ref.gvk.kind not in special),
        made=tuple(
            ObjectRef(_SECRET, ref.namespace, f"{ref.name}-certificate")
            for ref in _of_kind(objects, "Service")
        ),
        namespaces=_of_kind(objects, _NAMESPACE),
    )


def _of_kind(objects: Sequence[ObjectRef], kind: str) -> tuple[ObjectRef, ...]:
    return tuple(ref for ref in objects if ref.gvk.kind == kind)


_MAX_LISTED = 20
"""Maximum lines of a list; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A custom resource with its finalizers.

    `pods` and `claims` are the Pods and PersistentVolumeClaims that it owns, also indirectly.
    """

    ref: ObjectRef
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    pods: tuple[ObjectRef, ...] = ()
    claims: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """An installed CRD and the resources of its kind."""

    name: str
    """PLURAL.GROUP"""
    resources: tuple[Resource, ...]
    converted: tuple[str, ...] = ()
    """Served versions that need the operator's conversion webhook."""


def deletion_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the resources that are deleted with the CRDs, and their totals."""
    for definition in definitions:
        if not definition.resources:
            yield f"CRD {definition.name} will be deleted; it has no resources."
            continue
        yield f"CRD {definition.name} will be deleted with these resources and their dependents:"
        yield from _shown([_line(resource) for resource in definition.resources])
    resources = [one for definition in definitions for one in definition.resources]
    if resources:
        namespaces = {one.ref.namespace for one in resources}
        pods = sum(len(one.pods) for one in resources)
        yield (
            f"Total: {_count(len(resources), 'resource')} in"
            f" {_count(len(namespaces), 'namespace')}, {_count(pods, 'Pod')}."
        )


def remaining_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield what is kept, and which of it needs an operator."""
    for definition in definitions:
        pods = sum(len(one.pods) for one in definition.resources)
        if definition.resources:
            yield (
                f"Kept: CRD {definition.name}, {_count(len(definition.resources), 'resource')} and"
                f" {_count(pods, 'Pod')}."
            )
        held = [one for one in definition.resources if one.finalizers]
        if held:
            yield (
                "These resources have a finalizer that needs the operator. Deploy it again to"
                " delete them, or remove their finalizers to skip the cleanup:"
            )
            yield from _shown([_remove_finalizers(definition.name, one) for one in held])
        if definition.converted and definition.resources:
            yield (
                f"Requests for {', '.join(definition.converted)} of {definition.name} fail until"
                " an operator serves the conversion webhook again."
            )


def finalizer_commands(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the commands that remove the finalizers of remaining resources."""
    for definition in definitions:
        held = [one for one in definition.resources if one.finalizers]
        yield from _shown([_remove_finalizers(definition.name, one) for one in held])


def owned_objects(definitions: Sequence[Definition]) -> list[ObjectRef]:
    """Return the Pods and PersistentVolumeClaims that are deleted with the resources."""
    resources = [one for definition in definitions for one in definition.resources]
    return [ref for one in resources for ref in (*one.pods, *one.claims)]


def delete_commands(refs: Sequence[ObjectRef]) -> Iterator[str]:
    """Yield the commands that delete these objects."""
    yield from _shown([_delete(ref) for ref in refs])


def _line(resource: Resource) -> str:
    parts = [_count(len(resource.pods), "Pod"), *(str(claim) for claim in resource.claims)]
    return f"  {resource.ref}: {', '.join(parts)}"


def _remove_finalizers(crd: str, resource: Resource) -> str:
    where = f" --namespace={resource.ref.namespace}" if resource.ref.namespace else ""
    patch = '{"metadata":{"finalizers":null}}'
    now = "  # deletion pending" if resource.deleting else ""
    return f"  kubectl patch {crd} {resource.ref.name}{where} --type=merge --patch='{patch}'{now}"


def _delete(ref: ObjectRef) -> str:
    return f"  kubectl delete {ref.gvk.kind.lower()} {ref.name} --namespace={ref.namespace}"


def _shown(lines: list[str]) -> Iterator[str]:
    yield from lines[:_MAX_LISTED]
    if len(lines) > _MAX_LISTED:
        yield f"  and {len(lines) - _MAX_LISTED} more"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PODS = Kind(GVK("", "v1", "Pod"), "pods", True)
_CLAIMS = Kind(GVK("", "v1", "PersistentVolumeClaim"), "persistentvolumeclaims", True)
_CONCURRENCY = 8
"""Maximum concurrent requests."""

_IGNORED_KINDS = {
    "Event",
    "Lease",
    "Endpoints",
    "EndpointSlice",
    "PodMetrics",
    "ControllerRevision",
}
"""Kinds of objects that controllers create and delete, or that belong to the operator."""
_DEFAULT_OBJECTS = {
    ("ServiceAccount", "default"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
}
"""Kinds and names of objects that every namespace has."""


class Inventory:
    """Reads metadata only. Every method raises ApiError."""

    def __init__(self, api: Api, discovery: Discovery) -> None:
        """Keep the clients; no request is sent."""
        self._api = api
        self._discovery = discovery
        self._owners: dict[str, Sequence[Json]] = {}

    async def definitions(self, crds: Sequence[ObjectRef]) -> list[Definition]:
        """Return the installed CRDs with their resources and the objects those own."""
        found = []
        for ref in crds:
            try:
                crd = await self._api.request("GET", f"{_CRDS}/{ref.name}")
            except NotFound:
                continue
            found.append(await self._definition(crd))
        return found

    async def foreign_objects(self, namespace: str) -> list[ObjectRef]:
        """Return the objects in a namespace, without default ones and those being deleted."""
        limit, kinds = asyncio.Semaphore(_CONCURRENCY), await self._discovery.listable()

        async def listed(kind: Kind) -> list[Json]:
            async with limit:
                try:
                    return await self._list(kind, namespace)
                except NotFound:
                    # Its CRD was just deleted; discovery lists the kind for a moment longer.
                    return []

        lists = await asyncio.gather(*(listed(kind) for kind in kinds))
        found = {
            ObjectRef(kind.gvk, namespace, metadata["name"])
            for kind, items in zip(kinds, lists, strict=True)
            for metadata in items
            if "deletionTimestamp" not in metadata
        }
        return sorted(ref for ref in found if not _is_default(ref))

    async def _definition(self, crd: Json) -> Definition:
        spec = crd["spec"]
        served = [one for one in spec["versions"] if one["served"]]
        # Objects stored in the storage version need no conversion to be listed.
        version = next((one for one in served if one["storage"]), served[0])["name"]
        gvk = GVK(spec["group"], version, spec["names"]["kind"])
        kind = Kind(gvk, spec["names"]["plural"], spec["scope"] == "Namespaced")
        items = await self._list(kind, None)
        pods, claims = await self._owned(items)
        webhook = (spec.get("conversion") or {}).get("strategy") == "Webhook"
        return Definition(
            crd["metadata"]["name"],
            tuple(
                Resource(
                    ObjectRef(gvk, one.get("namespace") or "", one["name"]),
                    tuple(one.get("finalizers") or ()),
                    "deletionTimestamp" in one,
                    tuple(pods[one["uid"]]),
                    tuple(claims[one["uid"]]),
                )
                for one in items
            ),
            tuple(one["name"] for one in served if webhook and one["name"] != version),
        )

    async def _owned(
        self, items: Sequence[Json]
    ) -> tuple[dict[str, list[ObjectRef]], dict[str, list[ObjectRef]]]:
        """Return Pods and PersistentVolumeClaims by the uid of the resource they belong to."""
        uids = {one["uid"] for one in items}
        spaces = {one.get("namespace") for one in items}
        pods: defaultdict[str, list[ObjectRef]] = defaultdict(list)
        claims: defaultdict[str, list[ObjectRef]] = defaultdict(list)
        for kind, found in ((_PODS, pods), (_CLAIMS, claims)):
            for namespace in [None] if None in spaces else sorted(map(str, spaces)):
                for metadata in await self._list(kind, namespace):
                    ref = ObjectRef(kind.gvk, metadata["namespace"], metadata["name"])
                    for uid in await self._roots(metadata) & uids:
                        found[uid].append(ref)
        return pods, claims

    async def _roots(self, metadata: Json) -> set[str]:
        """Return the uids of all owners of an object, transitively."""
        found: set[str] = set()
        pending = [
            (metadata.get("namespace"), one) for one in metadata.get("ownerReferences") or ()
        ]
        while pending:
            namespace, reference = pending.pop()
            if reference["uid"] not in found:
                found.add(reference["uid"])
                above = await self._above(namespace, reference)
                pending += [(namespace, one) for one in above]
        return found

    async def _above(self, namespace: str | None, reference: Json) -> Sequence[Json]:
        """Return the owner references of an owner; none if it is deleted."""
        uid = reference["uid"]
        if uid not in self._owners:
            gvk = GVK.of(reference["apiVersion"], reference["kind"])
            try:
                kind = await self._discovery.resource(gvk)
                path = kind.path(namespace, reference["name"])
                body = await self._api.request("GET", path, accept=METADATA)
            except NotFound:
                body = {"metadata": {}}
            self._owners[uid] = body["metadata"].get("ownerReferences") or ()
        return self._owners[uid]

    async def _list(self, kind: Kind, namespace: str | None) -> list[Json]:
        """Return the metadata of all objects of a kind; None: of all namespaces."""
        pages = list_pages(self._api, kind.path(namespace), accept=METADATA_LIST)
        return [item["metadata"] async for page in pages for item in page.get("items") or ()]


def _is_default(ref: ObjectRef) -> bool:
    return ref.gvk.kind in _IGNORED_KINDS or (ref.gvk.kind, ref.name) in _DEFAULT_OBJECTS


_POLL_SECONDS = 0.5
_MAX_LINES = 5


class Removal:
    """One undeployment. Every method raises ApiError."""

    def __init__(
        self, api: Api, discovery: Discovery, report: Callable[[str], None], timeout: float
    ) -> None:
        """Call `report` with lines for users; `timeout` is in seconds, for each deletion."""
        self._api = api
        self._discovery = discovery
        self._inventory = Inventory(api, discovery)
        self._report = report
        self._timeout = timeout

    async def remove(self, plan: RemovalPlan, *, with_crds: bool) -> None:
        """Delete the objects of the plan. Raises ConfigError after a timeout."""
        if with_crds:
            # First, while the operator is running and can remove finalizers.
            await self._crds(plan.crds)
        for ref in plan.workloads:
            await self._delete(ref, propagation="Foreground")
        await self._wait(plan.workloads, "Pods still running")
        for ref in plan.rest:
            await self._delete(ref)
        for ref in plan.made:
            await self._certificates(ref)
        for ref in plan.namespaces:
            await self._namespace(ref)

    async def _crds(self, crds: Sequence[ObjectRef]) -> None:
        """Delete the resources, then the CRDs.

        The garbage collector cannot look up owners of a deleted kind; if it missed a deletion, it
        would never delete the owned objects.
        """
        definitions = await self._inventory.definitions(crds)
        resources = [one.ref for definition in definitions for one in definition.resources]
        for ref in resources:
            await self._request_deletion(ref)
        if await self._gone(resources):
            await self._owned_gone(owned_objects(definitions))
            for ref in crds:
                await self._delete(ref)
            if await self._gone(crds):
                return
        left = await self._inventory.definitions(crds)
        raise ConfigError(
            f"resources of {', '.join(ref.name for ref in crds)} not deleted within"
            f" {self._timeout:g} s; the operator is still deployed. See its log for the cause, or"
            " remove the finalizers to skip the cleanup:",
            *finalizer_commands(left),
        )

    async def _owned_gone(self, refs: Sequence[ObjectRef]) -> None:
        """Wait until all objects are deleted or being deleted. Raises ConfigError."""
        if await self._gone(refs, going=True):
            return
        left = [ref for ref in refs if await self._is_there(ref, going=True)]
        raise ConfigError(
            "the resources are deleted, but the garbage collector has not deleted all objects that"
            f" they owned within {self._timeout:g} s; the operator and the CRDs are still deployed."
            " Delete these objects, then try again:",
            *delete_commands(left),
        )

    async def _certificates(self, ref: ObjectRef) -> None:
        """Delete a Secret with generated certificates; a Secret of another creator is kept."""
        path = (await self._discovery.resource(ref.gvk)).path(ref.namespace, ref.name)
        try:
            secret = await self._api.request("GET", path)
        except NotFound:
            return
        if set(SECRET_KEYS) <= set(secret.get("data") or ()):
            await self._delete(ref)

    async def _namespace(self, ref: ObjectRef) -> None:
        left = await self._inventory.foreign_objects(ref.name)
        if not left:
            await self._delete(ref)
            return
        names = ", ".join(f"{one.gvk.kind} {one.name}" for one in left[:_MAX_LINES])
        more = f" and {len(left) - _MAX_LINES} more" if len(left) > _MAX_LINES else ""
        self._report(f"{ref} kept, because it contains {names}{more}")

    async def _delete(
        self, ref: ObjectRef, *, propagation: str = "Background", absent: str = "not found"
    ) -> None:
        """Delete an object, if it and its kind exist."""
        if await self._request_deletion(ref, propagation):
            self._report(f"{ref} deleted")
        elif absent:
            self._report(f"{ref} {absent}")

    async def _request_deletion(self, ref: ObjectRef, propagation: str = "Background") -> bool:
        """Send the deletion; return False if the object or its kind does not exist."""
        try:
            path = (await self._discovery.resource(ref.gvk)).path(ref.namespace, ref.name)
            await self._api.request("DELETE", path, params={"propagationPolicy": propagation})
        except NotFound:
            return False
        return True

    async def _wait(self, refs: Sequence[ObjectRef], why: str) -> None:
        if not await self._gone(refs):
            names = ", ".join(str(ref) for ref in refs)
            raise ConfigError(f"{names}: {why} after {self._timeout:g} s; try again")

    async def _gone(self, refs: Sequence[ObjectRef], *, going: bool = False) -> bool:
        """Wait until all are deleted, or with `going` being deleted; return False on timeout."""
        deadline = time.monotonic() + self._timeout
        for ref in refs:
            while await self._is_there(ref, going=going):
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _is_there(self, ref: ObjectRef, *, going: bool = False) -> bool:
        try:
            resource = await self._discovery.resource(ref.gvk)
            found = await self._api.request("GET", resource.path(ref.namespace, ref.name))
        except NotFound:
            return False
        return not (going and "deletionTimestamp" in found["metadata"])
