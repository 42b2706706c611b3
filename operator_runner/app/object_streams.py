"""Watches of objects other than primary resources, with the parts of objects that are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from operator_runner.controller.sources.shared_watches import WatchRequest
from operator_runner.core.model import GVK
from operator_runner.kube.api import Api
from operator_runner.kube.discovery import ApiResource, Discovery
from operator_runner.kube.watch import Extraction, MetadataEvent, watch_metadata


class ObjectStreams:
    """Watches kinds by their names."""

    def __init__(self, api: Api, discovery: Discovery, namespaces: Sequence[str]) -> None:
        """Watch for an operator with these namespaces; none: all of them."""
        self._api = api
        self._discovery = discovery
        self._namespaces = namespaces

    async def requested(
        self, request: WatchRequest, namespace: str | None
    ) -> AsyncIterator[MetadataEvent]:
        """Watch objects of references and triggers."""
        resource = await self._discovery.resource(request.gvk)
        if not resource.namespaced and namespace not in {None, *self._namespaces[:1]}:
            # The watch of the first namespace has all objects of a cluster-scoped kind.
            return
        async for event in watch_metadata(
            self._api,
            resource,
            namespace,
            request.label_selector,
            extraction=request.extraction,
            rediscover=partial(self._rediscovered, request.gvk),
        ):
            yield event

    async def dependents(
        self, gvk: GVK, namespace: str | None, extraction_of: Callable[..., Extraction | None]
    ) -> AsyncIterator[MetadataEvent]:
        """Watch a kind; only its metadata if it has no status, as Secrets and ConfigMaps."""
        resource = await self._discovery.resource(gvk)
        has_status = "status" in resource.subresources
        extraction = extraction_of(gvk, has_status=has_status)
        async for event in watch_metadata(
            self._api,
            resource,
            namespace,
            health=has_status,
            extraction=extraction,
            rediscover=partial(self._rediscovered, gvk),
        ):
            yield event

    async def _rediscovered(self, gvk: GVK) -> ApiResource:
        self._discovery.forget(gvk)
        return await self._discovery.resource(gvk)
