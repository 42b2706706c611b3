"""Deletes the parts of an operator, one after the other, and tells of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from operator_runner.errors import ConfigError, NotFound
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import Discovery
from operator_runner.model import ObjectRef
from operator_runner.undeploy.inventory import Inventory
from operator_runner.undeploy.loss import stuck
from operator_runner.undeploy.plan import Plan

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
        try:
            path = (await self._discovery.resource(ref.gvk)).path(ref.namespace, ref.name)
            await self._api.request("DELETE", path, params={"propagationPolicy": propagation})
        except NotFound:
            if absent:
                self._tell(f"{ref} {absent}")
        else:
            self._tell(f"{ref} deleted")

    async def _wait(self, refs: Sequence[ObjectRef], why: str) -> None:
        if not await self._gone(refs):
            names = ", ".join(str(ref) for ref in refs)
            raise ConfigError(f"{names}: {why} within {self._timeout:g} s; try again")

    async def _gone(self, refs: Sequence[ObjectRef]) -> bool:
        """Wait until none of the objects is there any more; False after the timeout."""
        deadline = time.monotonic() + self._timeout
        while await self._any_left(refs):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL)
        return True

    async def _any_left(self, refs: Sequence[ObjectRef]) -> bool:
        for ref in refs:
            try:
                resource = await self._discovery.resource(ref.gvk)
                await self._api.request("GET", resource.path(ref.namespace, ref.name))
            except NotFound:
                continue
            return True
        return False
