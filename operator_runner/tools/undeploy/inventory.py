"""Read resources of CRDs, the objects they own, and the contents of a namespace."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from operator_runner.core.errors import NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import METADATA, METADATA_LIST, Api, list_pages
from operator_runner.kube.discovery import ApiResource as Kind
from operator_runner.kube.discovery import Discovery
from operator_runner.tools.undeploy.deletion_summary import Definition, Resource

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
