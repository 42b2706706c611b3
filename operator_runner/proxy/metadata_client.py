"""Live metadata of objects; their content is not read.

Reading the metadata of an object needs permission to `get` it, of a collection to `list` it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from operator_runner.core.errors import NotFound
from operator_runner.core.fencing import Fence
from operator_runner.core.model import Json
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api, list_pages
from operator_runner.proxy.bodies import JSON_PATCH
from operator_runner.proxy.request_info import RequestInfo

_METADATA = (
    "application/json;as={kind};g=meta.k8s.io;v=v1,application/json;as={kind};g=meta.k8s.io;"
    "v=v1beta1,application/json"
)


class MetadataClient:
    """Reads and patches metadata."""

    def __init__(self, api: Api) -> None:
        """Send requests through `api`."""
        self._api = api

    async def at(self, path: str) -> Json:
        """Return the metadata of the object at a path, empty if missing. Raises ApiError."""
        accept = _METADATA.format(kind="PartialObjectMetadata")
        try:
            body = await self._api.request("GET", path, accept=accept)
        except NotFound:
            return {}
        return _metadata(body)

    async def collection(
        self, info: RequestInfo, selectors: Iterable[tuple[str, str]]
    ) -> AsyncIterator[Json]:
        """Yield the metadata of each object that the selectors match. Raises ApiError."""
        accept = _METADATA.format(kind="PartialObjectMetadataList")
        async for page in list_pages(
            self._api, info.collection_path, params=dict(selectors), accept=accept
        ):
            for item in page.get("items") or ():
                yield _metadata(item)

    async def set_managed_fields(
        self, path: str, fields: list[Json], version: str, fence: Fence
    ) -> Json:
        """Replace the managedFields of an object of this resourceVersion; return its metadata.

        Raises ApiError, Conflict for another version.
        """
        changes = {"/metadata/managedFields": fields, "/metadata/resourceVersion": version}
        body = await self._api.request(
            "PATCH",
            path,
            params={"fieldManager": FIELD_MANAGER},
            body=[{"op": "replace", "path": at, "value": new} for at, new in changes.items()],
            content_type=JSON_PATCH,
            accept=_METADATA.format(kind="PartialObjectMetadata"),
            fence=fence,
        )
        return _metadata(body)

    async def merge(self, path: str, metadata: Json, fence: Fence) -> Json:
        """Merge metadata into an object and return the result. Raises ApiError."""
        body = await self._api.request(
            "PATCH",
            path,
            params={"fieldManager": FIELD_MANAGER},
            body={"metadata": metadata},
            content_type=MERGE_PATCH,
            accept=_METADATA.format(kind="PartialObjectMetadata"),
            fence=fence,
        )
        return _metadata(body)


def _metadata(body: Json) -> Json:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
