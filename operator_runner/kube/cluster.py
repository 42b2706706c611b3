"""The Kubernetes API for a reconcile: read an object, write its metadata and status."""

from __future__ import annotations

from operator_runner.core.errors import ApiError, Forbidden, Invalid, NotFound
from operator_runner.core.fencing import Fences
from operator_runner.core.labels import field_selector
from operator_runner.core.model import GVK, EventSpec, Json, ObjectRef
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api
from operator_runner.kube.discovery import ApiResource, Discovery, explain_missing
from operator_runner.kube.events import EventRecorder


class KubeCluster:
    """Implements the `ClusterClient` port of reconcile; reads are live, writes have preconditions.

    Each method raises NotFound if the kind does not exist, and any other ApiError.
    """

    def __init__(
        self,
        api: Api,
        discovery: Discovery,
        fences: Fences | None = None,
        *,
        is_shard: bool = False,
    ) -> None:
        """Send requests through `api`, writes with the fence of their object.

        `is_shard` is whether other replicas reconcile other resources.
        """
        self._api = api
        self._discovery = discovery
        self._recorder = EventRecorder(api, is_shard=is_shard)
        self._fences = fences or Fences()

    async def get(self, ref: ObjectRef) -> Json | None:
        """Read the object; None if it does not exist. Who may only list it reads a list of one."""
        resource = await self._discovery.resource(ref.gvk)
        try:
            return await self._api.request("GET", resource.path(ref.namespace, ref.name))
        except NotFound:
            return None
        except Forbidden:
            # ansible-operator reads from its watches: existing roles may lack the verb `get`.
            selector = {"fieldSelector": field_selector("metadata.name", ref.name)}
            path = resource.path(ref.namespace)
            listed = await self._api.request("GET", path, params=selector, outer_levels=2)
            kind = {"apiVersion": ref.gvk.api_version, "kind": ref.gvk.kind}
            return next((kind | item for item in listed["items"]), None)

    async def patch_metadata(self, body: Json, metadata: Json) -> Json:
        """Merge `metadata` if `body` is still the current version, else raise Conflict."""
        ref = ObjectRef.of(body)
        resource = await self._discovery.resource(ref.gvk)
        patch = {"metadata": metadata | _precondition(body)}
        return await self._patch(ref, resource.path(ref.namespace, ref.name), patch)

    async def patch_status(self, body: Json, status: Json) -> Json:
        """Merge `status` into the status subresource if `body` is current, else raise Conflict.

        Raises Invalid if the status does not fit the CRD, or the CRD has no such subresource.
        """
        ref = ObjectRef.of(body)
        resource = await self._discovery.resource(ref.gvk)
        path = resource.path(ref.namespace, ref.name, "status")
        try:
            patch = {"metadata": _precondition(body), "status": status}
            return await self._patch(ref, path, patch)
        except NotFound as error:
            raise _explained(error, resource) from error

    async def explain_missing(self, gvk: GVK) -> str:
        """Return cause and hint for a kind that is not served; empty if it is, or if unknown."""
        try:
            served = {each.gvk for each in await self._discovery.served()}
        except ApiError:
            return ""
        return "" if gvk in served else explain_missing(gvk, sorted(served))

    async def emit(self, body: Json, event: EventSpec) -> None:
        """Record a Kubernetes Event about the object; a failure to do so is only logged."""
        await self._recorder.emit(body, event, self._fences.of(ObjectRef.of(body)))

    async def _patch(self, ref: ObjectRef, path: str, patch: Json) -> Json:
        return await self._api.request(
            "PATCH",
            path,
            params={"fieldManager": FIELD_MANAGER},
            body=patch,
            content_type=MERGE_PATCH,
            fence=self._fences.of(ref),
        )


def _precondition(body: Json) -> Json:
    """Return the metadata that makes a patch of an outdated object fail with 409."""
    metadata = body["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def _explained(error: NotFound, resource: ApiResource) -> NotFound | Invalid:
    """Distinguish a missing object from a CRD without status subresource: both are 404."""
    if "status" in resource.subresources:
        return error
    hint = "set `manageStatus: false` in watches.yaml"
    if not resource.gvk.is_built_in:
        hint = f"add `subresources: {{status: {{}}}}` to the version in its CRD, or {hint}"
    return Invalid(
        f"{resource.gvk} has no status subresource, so no conditions can be written; {hint}",
        error.status,
    )
