"""Deletes the parts of an operator, one after the other, and tells of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from operator_runner.core.errors import ConfigError, NotFound
from operator_runner.core.model import ObjectRef
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.tools.undeploy.deletion_summary import owned, remaining, stuck
from operator_runner.tools.undeploy.inventory import Inventory
from operator_runner.tools.undeploy.plan import Plan

_POLL = 0.5
_SHOWN = 5


class Removal:
    """One undeployment. Every method raises ApiError."""

    def __init__(
        self, api: Api, discovery: Discovery, tell: Callable[[str], None], timeout: float
    ) -> None:
        """`tell` takes lines for people; `timeout` is in seconds, for each object to go."""
        self._api = api
        self._discovery = discovery
        self._inventory = Inventory(api, discovery)
        self._tell = tell
        self._timeout = timeout

    async def remove(self, plan: Plan, *, with_crds: bool) -> None:
        """Delete what is to go. Raises ConfigError where something does not go in time."""
        if with_crds:
            # First, while the operator is there to do what finalizers wait for.
            await self._crds(plan.crds)
        for ref in plan.workloads:
            await self._delete(ref, propagation="Foreground")
        await self._wait(plan.workloads, "their Pods have not ended")
        for ref in plan.rest:
            await self._delete(ref)
        for ref in plan.made:
            await self._delete(ref, absent="")
        for ref in plan.namespaces:
            await self._namespace(ref)

    async def _crds(self, crds: Sequence[ObjectRef]) -> None:
        """Delete the resources, then the CRDs.

        Of an owner whose kind is gone, the garbage collector cannot tell whether it is gone too;
        where it has missed the deletion, what was owned would stay for ever.
        """
        definitions = await self._inventory.definitions(crds)
        resources = [one.ref for definition in definitions for one in definition.resources]
        for ref in resources:
            await self._request_deletion(ref)
        if await self._gone(resources):
            await self._owned_gone(owned(definitions))
            for ref in crds:
                await self._delete(ref)
            if await self._gone(crds):
                return
        left = await self._inventory.definitions(crds)
        raise ConfigError(
            f"the resources of {', '.join(ref.name for ref in crds)} have not gone within"
            f" {self._timeout:g} s; the operator is still there. Its log tells what keeps it from"
            " cleaning up. Without a clean-up they go by:",
            *stuck(left),
        )

    async def _owned_gone(self, refs: Sequence[ObjectRef]) -> None:
        """Wait until all is gone or going. Raises ConfigError."""
        if await self._gone(refs, going=True):
            return
        left = [ref for ref in refs if await self._is_there(ref, going=True)]
        raise ConfigError(
            f"the resources are gone, but the cluster's garbage collector has not deleted all that"
            f" they owned within {self._timeout:g} s; the operator and the CRDs are still there."
            " Delete it, then try again:",
            *remaining(left),
        )

    async def _namespace(self, ref: ObjectRef) -> None:
        left = await self._inventory.strangers(ref.name)
        if not left:
            await self._delete(ref)
            return
        names = ", ".join(f"{one.gvk.kind} {one.name}" for one in left[:_SHOWN])
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        self._tell(f"{ref} stays, for there is something in it: {names}{more}")

    async def _delete(
        self, ref: ObjectRef, *, propagation: str = "Background", absent: str = "was not there"
    ) -> None:
        """Delete an object; one that is gone already, or whose kind is, is fine."""
        if await self._request_deletion(ref, propagation):
            self._tell(f"{ref} deleted")
        elif absent:
            self._tell(f"{ref} {absent}")

    async def _request_deletion(self, ref: ObjectRef, propagation: str = "Background") -> bool:
        """Return False if the object, or its kind, is gone already."""
        try:
            path = (await self._discovery.resource(ref.gvk)).path(ref.namespace, ref.name)
            await self._api.request("DELETE", path, params={"propagationPolicy": propagation})
        except NotFound:
            return False
        return True

    async def _wait(self, refs: Sequence[ObjectRef], why: str) -> None:
        if not await self._gone(refs):
            names = ", ".join(str(ref) for ref in refs)
            raise ConfigError(f"{names}: {why} within {self._timeout:g} s; try again")

    async def _gone(self, refs: Sequence[ObjectRef], *, going: bool = False) -> bool:
        """Wait until none is there any more (`going`: or is being deleted); False: not in time."""
        deadline = time.monotonic() + self._timeout
        for ref in refs:
            while await self._is_there(ref, going=going):
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(_POLL)
        return True

    async def _is_there(self, ref: ObjectRef, *, going: bool = False) -> bool:
        try:
            resource = await self._discovery.resource(ref.gvk)
            found = await self._api.request("GET", resource.path(ref.namespace, ref.name))
        except NotFound:
            return False
        return not (going and "deletionTimestamp" in found["metadata"])
