"""Delete the objects of an operator in order, and report each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from operator_runner.core.errors import ConfigError, NotFound
from operator_runner.core.model import ObjectRef
from operator_runner.kube.api import Api
from operator_runner.kube.certificate_sources import SECRET_KEYS
from operator_runner.kube.discovery import Discovery
from operator_runner.tools.undeploy.deletion_summary import (
    delete_commands,
    finalizer_commands,
    owned_objects,
)
from operator_runner.tools.undeploy.inventory import Inventory
from operator_runner.tools.undeploy.plan import RemovalPlan

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
