"""Lists the objects of a CRD page by page, and has the API server write each of them anew.

Only metadata is read, and nothing is sent back but a precondition: the API server itself reads
the object, converts it, and writes it if its bytes in the storage version differ from those that
are stored. So no field can be lost on the way, whatever this program knows of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from operator_runner.core.errors import ApiError, Conflict, Expired, NotFound, Unavailable
from operator_runner.core.model import Json
from operator_runner.kube.api import FIELD_MANAGER, MERGE_PATCH, Api
from operator_runner.tools.storage_migration.target import Target

T = TypeVar("T")

PAGE = 100
"""Objects a page: what is done again at most after a kill."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries while the API server is away, as during an upgrade of it."""
_AWAY = frozenset({0, 429, 503, 504})
"""No answer, or none for now; a 500 is what a conversion webhook's refusal looks like."""


class Result(Enum):
    """What has become of one object."""

    REWRITTEN = "rewritten"
    CURRENT = "stored so already"
    OTHERS = "written or deleted by others meanwhile"


@dataclass(frozen=True, slots=True)
class Page:
    """Metadata of some objects; `following` is empty on the last page, `left` is an estimate."""

    items: tuple[Json, ...]
    following: str
    left: int


class Objects:
    """The stored objects of one CRD."""

    def __init__(self, api: Api, target: Target, *, dry_run: bool) -> None:
        """With `dry_run` the API server does all but write."""
        self._api = api
        self._target = target
        self._params = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})

    async def page(self, following: str) -> Page:
        """Return the page that a continue token begins, the first one for an empty token.

        Raises ApiError if no served version can be listed.
        """
        first: ApiError | None = None
        for version in self._target.readable:
            try:
                return await patiently(partial(self._list, version, following))
            except ApiError as error:
                if error.status < 500:  # noqa: PLR2004
                    raise
                first = first or error
        assert first is not None
        raise first

    async def rewrite(self, metadata: Json) -> Result:
        """Have an object stored in the storage version, unless it was changed since it was listed.

        Whoever changed it since has had it written in that version. Raises ApiError if the API
        server refuses, as it does where the object cannot be converted.
        """
        path = self._target.path(
            self._target.storage, metadata.get("namespace", ""), metadata["name"]
        )
        listed = metadata["resourceVersion"]
        body = {"metadata": {"uid": metadata["uid"], "resourceVersion": listed}}
        try:
            answer = await patiently(
                lambda: self._api.request(
                    "PATCH", path, params=self._params, body=body, content_type=MERGE_PATCH
                )
            )
        except (Conflict, NotFound):
            return Result.OTHERS
        same = answer["metadata"]["resourceVersion"] == listed
        return Result.CURRENT if same else Result.REWRITTEN

    async def _list(self, version: str, following: str) -> Page:
        params = {"limit": str(PAGE)} | ({"continue": following} if following else {})
        path = self._target.path(version)
        try:
            answer = await self._api.request("GET", path, params=params, accept=_METADATA)
        except Expired as error:
            # The token's revision is compacted away. With the new one the list goes on at the
            # same key; without one it begins anew, and what is done is found current.
            params = {"limit": str(PAGE)}
            if error.following:
                params["continue"] = error.following
            answer = await self._api.request("GET", path, params=params, accept=_METADATA)
        metadata = answer["metadata"]
        return Page(
            tuple(item["metadata"] for item in answer["items"]),
            metadata.get("continue") or "",
            metadata.get("remainingItemCount") or 0,
        )


async def patiently(send: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request while the API server is away, for some seconds. Raises ApiError."""
    for delay in _DELAYS:
        try:
            return await send()
        except Unavailable as error:
            if error.status not in _AWAY:
                raise
        await asyncio.sleep(delay)
    return await send()
