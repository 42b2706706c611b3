"""Which of the watched kinds the API server knows: a CRD may be installed after the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from operator_runner.errors import ApiError
from operator_runner.kube.discovery import Discovery, Resource
from operator_runner.model import GVK, Watch
from operator_runner.triggers.established import Established

_log = structlog.get_logger(__name__)
_POLL = 2.0
"""Seconds between two looks for a kind whose CRD is missing."""


class Kinds:
    """Looks for the kinds of watches.yaml until all of them are there."""

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
        self._looked = asyncio.Event()
        self._came = asyncio.Event()

    async def look(self) -> None:
        """Return when every kind was asked for once, whether it was there or not."""
        await self._looked.wait()

    async def come(self) -> None:
        """Return when a kind has come that was missing before."""
        await self._came.wait()
        self._came.clear()

    async def run(self) -> None:
        """Look until cancelled."""
        missing = [watch for watch in self._watches if not await self._try(watch.gvk, loud=True)]
        self._looked.set()
        while missing:
            await asyncio.sleep(_POLL)
            late = [watch for watch in missing if await self._try(watch.gvk, loud=False)]
            missing = [watch for watch in missing if watch not in late]
            if late:
                self._came.set()
        await asyncio.Event().wait()

    async def _try(self, gvk: GVK, *, loud: bool) -> bool:
        try:
            resource = await self._discovery.resource(gvk)
        except ApiError as error:
            if loud:
                _log.warning("Waiting for a kind to watch", gvk=str(gvk), reason=str(error))
            return False
        self._established.need(str(gvk), self._paths(resource))
        return True

    def _paths(self, resource: Resource) -> list[str]:
        if not (resource.namespaced and self._namespaces):
            return [resource.path()]
        return [resource.path(namespace) for namespace in self._namespaces]
