"""Which of the watched kinds the API server knows: a CRD may be installed after the operator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn

import structlog

from operator_runner.controller.sources.watch_readiness import Established
from operator_runner.core.async_tasks import end_tasks
from operator_runner.core.errors import ApiError, Expired, NotFound
from operator_runner.core.model import GVK, Watch
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.watch import Backoff

_log = structlog.get_logger(__name__)
_POLL = 2.0
"""Seconds between two looks for a kind whose CRD is missing."""


class Kinds:
    """Looks for the kinds of watches.yaml, those that come late and those that go."""

    def __init__(
        self,
        discovery: Discovery,
        watches: Sequence[Watch],
        namespaces: Sequence[str],
        established: Established,
    ) -> None:
        """Tell `established` on which paths each kind will be watched."""
        self._discovery = discovery
        self._watches = watches
        self._namespaces = namespaces
        self._established = established
        self._missing: list[GVK] = []
        self._found: dict[GVK, ApiResource] = {}
        self._looked = asyncio.Event()
        self._came = asyncio.Event()

    async def look(self) -> None:
        """Return when every kind was asked for once, whether it was there or not."""
        await self._looked.wait()

    def known(self) -> list[ApiResource]:
        """Return the resources of the kinds that were there when they were last asked for."""
        return list(self._found.values())

    async def come(self) -> None:
        """Return when a kind has come that was missing before."""
        await self._came.wait()
        self._came.clear()

    async def look_again(self) -> None:
        """Find out which kinds have gone, for a watch of one of them has been refused."""
        # What is being deleted is known to the API server for a moment longer.
        await asyncio.sleep(_POLL)
        for watch in self._watches:
            self._discovery.forget(watch.gvk)
        await self._look_for_all()

    async def run(self) -> None:
        """Look until cancelled."""
        await self._look_for_all()
        self._looked.set()
        while True:
            await asyncio.sleep(_POLL)
            late = [gvk for gvk in self._missing if await self._try(gvk, loud=False)]
            self._missing = [gvk for gvk in self._missing if gvk not in late]
            if late:
                self._came.set()

    async def _look_for_all(self) -> None:
        gvks = [watch.gvk for watch in self._watches]
        self._found.clear()
        self._missing = [gvk for gvk in gvks if not await self._try(gvk, loud=True)]
        for gvk in self._missing:
            self._established.lost(str(gvk))

    async def _try(self, gvk: GVK, *, loud: bool) -> bool:
        try:
            resource = await self._discovery.resource(gvk)
            _raise_if_unwatchable(resource)
        except ApiError as error:
            if loud:
                _log.warning("Waiting for a kind to watch", gvk=str(gvk), reason=str(error))
            return False
        self._found[gvk] = resource
        self._established.need(str(gvk), self._paths(resource))
        return True

    def _paths(self, resource: ApiResource) -> list[str]:
        if not (resource.namespaced and self._namespaces):
            return [resource.path()]
        return [resource.path(namespace) for namespace in self._namespaces]


async def keep_watching(
    watch: Callable[[Sequence[ApiResource]], Coroutine[Any, Any, None]], kinds: Kinds
) -> NoReturn:
    """Watch the kinds that are there, again when one has come or gone and after any failure."""
    await kinds.look()
    delay = Backoff()
    while True:
        began = time.monotonic()
        watching = asyncio.create_task(watch(kinds.known()))
        coming = asyncio.create_task(kinds.come())
        try:
            await asyncio.wait([watching, coming], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        except (NotFound, Expired) as error:
            _log.warning("Watching anew", reason=str(error))
            await kinds.look_again()
        except Exception as error:  # noqa: BLE001 whatever it was, it must not end the operator
            _log.exception("Restarting the watches of all resources", reason=str(error))
            await delay.wait(time.monotonic() - began)
            await kinds.look_again()
        finally:
            await end_tasks([watching, coming])


def _raise_if_unwatchable(resource: ApiResource) -> None:
    if not {"list", "watch"} <= resource.verbs:
        raise ApiError(f"the API server lets nobody list and watch {resource.plural}")
