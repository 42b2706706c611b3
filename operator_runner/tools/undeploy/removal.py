"""Delete the objects of an operator in order, and report what is deleted and kept."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from operator_runner.core.errors import ConfigError, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import METADATA_LIST, Api, list_pages
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
    """A custom resource, and the objects in namespaces that it owns."""

    ref: ObjectRef
    uid: str
    has_finalizers: bool = False
    owned: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """An installed CRD and the resources of its kind."""

    name: str
    """PLURAL.GROUP"""
    resources: tuple[Resource, ...]


def deletion_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the resources that are deleted with the CRDs, with the objects that they own."""
    for definition in definitions:
        if not definition.resources:
            yield f"CRD {definition.name} will be deleted; it has no resources."
            continue
        yield f"CRD {definition.name} will be deleted with these resources and their dependents:"
        yield from _shown(
            [
                f"  {one.ref}: {', '.join(map(str, one.owned)) or 'no objects'}"
                for one in definition.resources
            ]
        )
        yield f"Total: {_count(len(definition.resources), 'resource')}."


def remaining_lines(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield what is kept, and which of it needs an operator."""
    for definition in definitions:
        if definition.resources:
            yield (
                f"Kept: CRD {definition.name} and {_count(len(definition.resources), 'resource')}."
            )
        if commands := list(finalizer_commands([definition])):
            yield (
                "These resources have a finalizer that needs the operator. Deploy it again to"
                " delete them, or remove their finalizers to skip the cleanup:"
            )
            yield from commands


def finalizer_commands(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield the commands that remove the finalizers of remaining resources."""
    for definition in definitions:
        held = [one for one in definition.resources if one.has_finalizers]
        yield from _shown([_remove_finalizers(definition.name, one.ref) for one in held])


def _remove_finalizers(crd: str, ref: ObjectRef) -> str:
    where = f" --namespace={ref.namespace}" if ref.namespace else ""
    patch = '{"metadata":{"finalizers":null}}'
    return f"  kubectl patch {crd} {ref.name}{where} --type=merge --patch='{patch}'"


def _shown(lines: list[str]) -> Iterator[str]:
    yield from lines[:_MAX_LISTED]
    if len(lines) > _MAX_LISTED:
        yield f"  and {len(lines) - _MAX_LISTED} more"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
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

    async def definitions(self, crds: Sequence[ObjectRef]) -> list[Definition]:
        """Return the installed CRDs with their resources."""
        found = []
        for ref in crds:
            try:
                crd = await self._api.request("GET", f"{_CRDS}/{ref.name}")
            except NotFound:
                continue
            found.append(await self._definition(crd))
        return found

    async def with_owned(self, definitions: Sequence[Definition]) -> list[Definition]:
        """Return the definitions with the objects that their resources own."""
        resources = [one for definition in definitions for one in definition.resources]
        owned: defaultdict[str, list[ObjectRef]] = defaultdict(list)
        namespaces = {one.ref.namespace for one in resources}
        for namespace in [None] if "" in namespaces else sorted(namespaces):
            for ref, metadata in await self._objects(namespace):
                for owner in metadata.get("ownerReferences") or ():
                    owned[owner["uid"]].append(ref)
        return [
            replace(
                definition,
                resources=tuple(
                    replace(one, owned=tuple(owned[one.uid])) for one in definition.resources
                ),
            )
            for definition in definitions
        ]

    async def foreign_objects(self, namespace: str) -> list[ObjectRef]:
        """Return the objects in a namespace, without default ones and those being deleted."""
        found = {
            ref
            for ref, metadata in await self._objects(namespace)
            if "deletionTimestamp" not in metadata
        }
        return sorted(ref for ref in found if not _is_default(ref))

    async def _objects(self, namespace: str | None) -> list[tuple[ObjectRef, Json]]:
        """Return reference and metadata of all objects in a namespace; None: in all."""
        limit, kinds = asyncio.Semaphore(_CONCURRENCY), await self._discovery.listable()

        async def listed(kind: Kind) -> list[Json]:
            async with limit:
                try:
                    return await self._list(kind, namespace)
                except NotFound:
                    # Its CRD was just deleted; discovery lists the kind for a moment longer.
                    return []

        lists = await asyncio.gather(*(listed(kind) for kind in kinds))
        return [
            (ObjectRef(kind.gvk, metadata["namespace"], metadata["name"]), metadata)
            for kind, items in zip(kinds, lists, strict=True)
            for metadata in items
        ]

    async def _definition(self, crd: Json) -> Definition:
        spec = crd["spec"]
        served = [one for one in spec["versions"] if one["served"]]
        # Objects stored in the storage version need no conversion to be listed.
        version = next((one for one in served if one["storage"]), served[0])["name"]
        gvk = GVK(spec["group"], version, spec["names"]["kind"])
        kind = Kind(gvk, spec["names"]["plural"], spec["scope"] == "Namespaced")
        resources = (
            Resource(
                ObjectRef(gvk, one.get("namespace") or "", one["name"]),
                one["uid"],
                bool(one.get("finalizers")),
            )
            for one in await self._list(kind, None)
        )
        return Definition(crd["metadata"]["name"], tuple(resources))

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
        if not await self._gone(plan.workloads):
            names = ", ".join(str(ref) for ref in plan.workloads)
            raise ConfigError(f"{names}: Pods still running after {self._timeout:g} s; try again")
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
        resources = [
            one
            for definition in await self._inventory.with_owned(definitions)
            for one in definition.resources
        ]
        for one in resources:
            await self._request_deletion(one.ref)
        if await self._gone([one.ref for one in resources]):
            await self._owned_gone([ref for one in resources for ref in one.owned])
            for ref in crds:
                await self._delete(ref)
            if await self._gone(crds):
                return
        left = await self._inventory.definitions(crds)
        hint = (
            f"resources of {', '.join(ref.name for ref in crds)} not deleted within"
            f" {self._timeout:g} s; the operator is still deployed. See its log for the cause, or"
            " remove the finalizers to skip the cleanup:"
        )
        raise ConfigError("\n".join([hint, *finalizer_commands(left)]))

    async def _owned_gone(self, refs: Sequence[ObjectRef]) -> None:
        """Wait until all objects are deleted or being deleted. Raises ConfigError."""
        if await self._gone(refs, going=True):
            return
        left = [ref for ref in refs if await self._is_there(ref, going=True)]
        raise ConfigError(
            "the resources are deleted, but the garbage collector has not deleted all objects that"
            f" they owned within {self._timeout:g} s; the operator and the CRDs are still deployed."
            f" Delete these objects, then try again: {', '.join(map(str, left))}"
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

    async def _delete(self, ref: ObjectRef, *, propagation: str = "Background") -> None:
        """Delete an object, if it and its kind exist."""
        is_deleted = await self._request_deletion(ref, propagation)
        self._report(f"{ref} {'deleted' if is_deleted else 'not found'}")

    async def _request_deletion(self, ref: ObjectRef, propagation: str = "Background") -> bool:
        """Send the deletion; return False if the object or its kind does not exist."""
        try:
            path = (await self._discovery.resource(ref.gvk)).path(ref.namespace, ref.name)
            await self._api.request("DELETE", path, params={"propagationPolicy": propagation})
        except NotFound:
            return False
        return True

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
