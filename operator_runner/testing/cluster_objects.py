"""The objects of a test in the cluster: applied, read and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from operator_runner.core.errors import ApiError, ConfigError, Forbidden, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.api import MERGE_PATCH, Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.session import Connection

_APPLY = "application/apply-patch+yaml"
_MANAGER = "operator-runner-testing"
_Argument = TypeVar("_Argument")
_DEADLINE_SECONDS = 120.0
"""Time limit for CRDs to be served or deleted, and for namespaces to have an account."""
_SETTLE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_WORKLOADS = {("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")}
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SET_BY_SERVER = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
_FORCE = {"fieldManager": _MANAGER, "force": "true"}


class ClusterObjects:
    """Writes and reads objects as a user does. Every method raises ApiError."""

    def __init__(self, connection: Connection) -> None:
        """Use `connection`; the caller closes it."""
        self._api = Api(connection)
        self._discovery = Discovery(self._api)

    async def install_crd(self, crd: Json, file: str) -> bool:
        """Create a CRD and wait until its kinds are served; return whether it is new.

        Raises ConfigError if the cluster has another one of this name: it may be in use.
        """
        name = crd["metadata"]["name"]
        # No operator runs that would convert.
        wanted = {**crd, "spec": {**crd["spec"], "conversion": {"strategy": "None"}}}
        wanted.pop("status", None)
        path = f"{_CRDS}/{name}"
        await self._until(f"The CRD {name} is still being deleted", self._is_not_terminating, path)
        current = await self._read(path)
        if current is None:
            await self._apply(path, wanted)
        else:
            planned = await self._apply(path, wanted, dryRun="All")
            if planned["spec"]["versions"] != current["spec"]["versions"]:
                raise ConfigError(
                    f"The cluster has another version of the CRD {name} than {file}; update it "
                    "with `kubectl apply`, or unset KUBECONFIG to test with a control plane of "
                    "its own"
                )
        spec = crd["spec"]
        for version in spec["versions"]:
            if version["served"]:
                gvk = GVK(spec["group"], version["name"], spec["names"]["kind"])
                await self._until(f"{gvk} is not served", self._is_served, gvk)
        return current is None

    async def delete_crd(self, name: str) -> None:
        """Delete a CRD, if it exists, and wait until it is gone."""
        path = f"{_CRDS}/{name}"
        await self._delete(path)
        await self._until(f"The CRD {name} is still being deleted", self._is_not_terminating, path)

    async def create_namespace(self, name: str) -> None:
        """Create a namespace, and wait until Pods can be created in it.

        They are refused until a controller has created its service account.
        """
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self._api.request("POST", "/api/v1/namespaces", body=body)
        with suppress(Forbidden):
            # An API server without controllers has no accounts at all.
            if await self._exists(_default_account("default")):
                otherwise = f"The namespace {name} has no service account `default`"
                await self._until(otherwise, self._exists, _default_account(name))

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace, if it exists."""
        await self._delete(f"/api/v1/namespaces/{name}")

    async def apply(self, body: Json, namespace: str) -> Json:
        """Apply an object and its status; objects without a namespace are in `namespace`.

        The object may be one that was read. A concurrent edit is not a conflict.
        """
        resource, path = await self._path(body, namespace)
        metadata = {k: v for k, v in body["metadata"].items() if k not in _SET_BY_SERVER}
        wanted = {**body, "metadata": metadata}
        status = wanted.pop("status", None) if "status" in resource.subresources else None
        if resource.namespaced:
            metadata.setdefault("namespace", namespace)
        applied = await self._apply(path, wanted)
        if status is not None:
            patch = {
                "apiVersion": body["apiVersion"],
                "kind": body["kind"],
                "metadata": {"name": metadata["name"]},
                "status": status,
            }
            applied = await self._apply(f"{path}/status", patch)
        return applied

    async def get(self, ref: ObjectRef) -> Json | None:
        """Return an object, None if it does not exist."""
        resource = await self._discovery.resource(ref.gvk)
        return await self._read(resource.path(ref.namespace, ref.name))

    async def settle(self, refs: Iterable[ObjectRef]) -> None:
        """Wait until the controllers of Kubernetes have seen these workloads, at most a minute.

        They write annotations, which would otherwise seem to be changes of the next run.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                for ref in refs:
                    if (ref.gvk.group, ref.gvk.kind) in _WORKLOADS:
                        await self._wait_observed(ref)

    async def _wait_observed(self, ref: ObjectRef) -> None:
        while (body := await self.get(ref)) is not None:
            observed = (body.get("status") or {}).get("observedGeneration", 0)
            if observed >= body["metadata"]["generation"]:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def delete(self, body: Json, namespace: str) -> Json:
        """Delete an object and return it as it was. Raises NotFound if it does not exist."""
        _, path = await self._path(body, namespace)
        found = await self._api.request("GET", path)
        await self._delete(path)
        return found

    async def remove(self, body: Json, namespace: str) -> None:
        """Delete an object without waiting for its finalizers; it, or its kind, may be unknown."""
        patch = {"metadata": {"finalizers": None}}
        with suppress(NotFound, ConfigError):
            _, path = await self._path(body, namespace)
            await self._delete(path)
            await self._api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def events(self, body: Json) -> list[Json]:
        """Return the Events of an object, oldest first."""
        metadata = body["metadata"]
        # Those of cluster-scoped objects are in the namespace default.
        path = f"/api/v1/namespaces/{metadata.get('namespace') or 'default'}/events"
        selector = f"involvedObject.uid={metadata['uid']}"
        found = await self._api.request(
            "GET", path, params={"fieldSelector": selector}, outer_levels=2
        )
        return sorted(found["items"], key=lambda each: str(each["metadata"]["creationTimestamp"]))

    async def _path(self, body: Json, namespace: str) -> tuple[ApiResource, str]:
        gvk = GVK.of(str(body.get("apiVersion")), str(body.get("kind")))
        name = (body.get("metadata") or {}).get("name")
        if not name:
            raise ConfigError(f"an object of the kind {gvk.kind} has no metadata.name")
        resource = await self._discovery.resource(gvk)
        return resource, resource.path(body["metadata"].get("namespace") or namespace, name)

    async def _until(
        self, otherwise: str, check: Callable[[_Argument], Awaitable[bool]], argument: _Argument
    ) -> None:
        """Wait until a check is true. Raises ConfigError with `otherwise` at the deadline."""
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                while not await check(argument):  # noqa: ASYNC110 (state of the server)
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            raise ConfigError(f"{otherwise} after {_DEADLINE_SECONDS:g} s") from None

    async def _is_not_terminating(self, path: str) -> bool:
        found = await self._read(path)
        return found is None or "deletionTimestamp" not in found["metadata"]

    async def _exists(self, path: str) -> bool:
        return await self._read(path) is not None

    async def _is_served(self, gvk: GVK) -> bool:
        """Return whether discovery has a kind, and its objects can be listed."""
        self._discovery.forget(gvk)
        try:
            resource = await self._discovery.resource(gvk)
            await self._api.request("GET", resource.path(), params={"limit": "1"}, outer_levels=2)
        except ApiError:
            return False
        return True

    async def _apply(self, path: str, body: Json, **parameters: str) -> Json:
        params = {**_FORCE, **parameters}
        return await self._api.request("PATCH", path, params=params, body=body, content_type=_APPLY)

    async def _read(self, path: str) -> Json | None:
        try:
            return await self._api.request("GET", path)
        except NotFound:
            return None

    async def _delete(self, path: str) -> None:
        policy: dict[str, Any] = {"propagationPolicy": "Background"}
        try:
            await self._api.request("DELETE", path, body=policy)
        except NotFound:
            return


def _default_account(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
