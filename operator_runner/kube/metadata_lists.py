"""Lists of metadata that several readers share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from operator_runner.core.model import Json
from operator_runner.kube.api import METADATA_LIST, Api
from operator_runner.kube.paging import list_pages

_KEPT_SECONDS = 10.0
"""Time that a list is kept; readers accept younger ones only."""


@dataclass(frozen=True, slots=True)
class MetadataList:
    """The metadata of the objects of a list, by namespace and name."""

    resource_version: str
    objects: Mapping[tuple[str, str], Json]


class MetadataLists:
    """Reads lists consistently, and shares those that are young enough."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._api, self._clock = api, clock
        self._lists: dict[tuple[str, str], tuple[float, asyncio.Task[MetadataList]]] = {}

    async def get(self, collection: str, query: str = "", *, max_age: float = 0.0) -> MetadataList:
        """Return the list at the path of a collection, with the selectors of `query`.

        Its request has begun at most `max_age` seconds before this call. Raises ApiError.
        """
        now, key = self._clock(), (collection, query)
        began, task = self._lists.get(key, (float("-inf"), None))
        if task is None or began < now - max_age:
            self._drop_old(now)
            task = asyncio.create_task(self._read(collection, query), name=f"list {collection}")
            self._lists[key] = now, task
        try:
            # Other readers still wait for it if this one is cancelled.
            return await asyncio.shield(task)
        except BaseException:
            if task.done() and self._lists.get(key, (0, None))[1] is task:
                del self._lists[key]
            raise

    def _drop_old(self, now: float) -> None:
        for key, (began, task) in list(self._lists.items()):
            if task.done() and began < now - _KEPT_SECONDS:
                del self._lists[key]

    async def _read(self, collection: str, query: str) -> MetadataList:
        objects, version = {}, ""
        params = dict(parse_qsl(query))
        async for page in list_pages(self._api, collection, params=params, accept=METADATA_LIST):
            version = str(page["metadata"].get("resourceVersion", ""))
            for item in page.get("items") or ():
                metadata = item["metadata"]
                objects[metadata.get("namespace") or "", metadata["name"]] = metadata
        return MetadataList(version, objects)
